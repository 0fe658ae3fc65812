/** Quantiles of a histogram's buckets. */

export interface Bucket {
  /** The greatest value that it counts; Infinity for the last bucket. */
  bound: number;
  /** Number of values up to `bound`, including those of lower buckets. */
  count: number;
}

/**
 * The `q`-quantile (0 to 1), as computed by Prometheus' `histogram_quantile`: linear within its
 * bucket; the first one begins at 0. A quantile in the last bucket is the highest finite bound.
 * Null if there are no values. `buckets` are in ascending order; values are not negative.
 */
export function quantile(q: number, buckets: readonly Bucket[]): number | null {
  const total = buckets.at(-1)?.count ?? 0;
  if (!(total > 0) || buckets.at(-1)!.bound !== Infinity) return null;
  const rank = q * total;
  const index = buckets.findIndex(({ count }) => count >= rank);
  const below = buckets[index - 1] ?? { bound: 0, count: 0 };
  const { bound, count } = buckets[index]!;
  if (bound === Infinity) return buckets.length > 1 ? below.bound : null;
  return count === below.count ? bound : below.bound + ((bound - below.bound) * (rank - below.count)) / (count - below.count);
}
