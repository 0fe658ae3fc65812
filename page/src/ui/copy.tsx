/** A button that copies a text; absent without TLS, where browsers have no clipboard. */

import { useSignal } from "@preact/signals";

export function Copy({ text }: { text: string }) {
  const done = useSignal(false);
  if (!navigator.clipboard) return null;
  const copy = () =>
    navigator.clipboard.writeText(text).then(
      () => {
        done.value = true;
        setTimeout(() => (done.value = false), 1500);
      },
      () => {},
    );
  return (
    <button type="button" class="small" disabled={!text} onClick={copy}>
      <span aria-live="polite">{done.value ? "Copied" : "Copy"}</span>
    </button>
  );
}
