/** JSON Pointers (RFC 6901). */

/** The unescaped segments of a pointer: "/a~1b/0" is "a/b" and "0". */
export function segmentsOf(pointer: string): string[] {
  return pointer
    .split("/")
    .slice(1)
    .map((segment) => segment.replaceAll("~1", "/").replaceAll("~0", "~"));
}

/** A name as a segment of a pointer. */
export function escaped(name: string): string {
  return name.replaceAll("~", "~0").replaceAll("/", "~1");
}
