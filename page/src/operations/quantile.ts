/** Quantiles of a histogram's buckets. */

export interface Bucket {
  /** The greatest value that it counts; of the last one Infinity. */
  bound: number;
  /** How many values were at most `bound`: those of the buckets below are among them. */
  count: number;
}

/**
 * The `q`-quantile (0 to 1) as Prometheus' `histogram_quantile` reckons it: along a line within the bucket
 * that it falls into, whose lower bound is 0 for the first one. What falls above the last bound comes out as that bound.
 * Null where nothing was counted. `buckets` go upwards, for values that are not negative.
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
