/** The text of a program, of any length: only the visible blocks are laid out. */

/** Lines that are laid out together. */
const BLOCK = 100;

export function Listing({ text, label, className }: { text: string; label: string; className: string }) {
  const lines = text.split("\n");
  const blocks = Array.from({ length: Math.ceil(lines.length / BLOCK) }, (_, at) => lines.slice(at * BLOCK, (at + 1) * BLOCK));
  // Blocks that are not laid out have the height of their lines; the width comes from the longest line.
  const width = lines.reduce((most, line) => Math.max(most, line.length), 0);
  return (
    <pre class={`listing ${className}`} tabIndex={0} role="region" aria-label={label}>
      <code style={{ minWidth: `max(100%, ${width}ch)` }}>
        {blocks.map((block, at) => (
          <span key={at} style={{ containIntrinsicHeight: `${block.length}lh` }}>
            {block.join("\n") + (at + 1 < blocks.length ? "\n" : "")}
          </span>
        ))}
      </code>
    </pre>
  );
}
