/** The server's error for the constraint on screen, with a button that shows its place. */

import { mainLane } from "../request/actions";
import { constraintKind, goToPointer } from "../state";
import type { ServerError } from "../server/access";
import { offsetOf, type Place } from "./place";
import { register } from "./register";

export function Refusal({ error }: { error: ServerError & Place }) {
  // Without a code it is no refusal: the connection failed, and another attempt may succeed.
  if (error.code && mainLane.error.value?.message === error.message) return <p class="quiet">The server refused this constraint. The reason is shown with the answer.</p>;
  const kind = constraintKind.value;
  const { pointer } = error;
  const inText = (kind === "regex" || kind === "grammar") && (typeof error.line === "number" || typeof error.position === "number");
  return (
    <div class="failure" role="status">
      <p>{error.message}</p>
      {typeof pointer === "string" && kind === "schema" && (
        <button type="button" class="small" onClick={() => goToPointer(pointer)}>
          Show {pointer || "the root"} in the schema
        </button>
      )}
      {inText && (
        <button type="button" class="small" onClick={() => goToText(kind, error)}>
          Show the place
        </button>
      )}
      {typeof pointer !== "string" && !inText && (
        <button type="button" class="small" onClick={() => void register()}>
          Try again
        </button>
      )}
    </div>
  );
}

/** Selects the character at a place in the text field with that id. */
function goToText(id: "regex" | "grammar", place: Place): void {
  const field = document.getElementById(id) as HTMLTextAreaElement | null;
  if (!field) return;
  const at = offsetOf(field.value, place);
  field.focus();
  field.setSelectionRange(at, at + 1);
}
