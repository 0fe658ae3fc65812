/** Asks for an API key. It stays in this tab's memory. */

import { useEffect, useRef } from "preact/hooks";

import { apiKey, declineKey, keyWanted, takeKey } from "../state";

export function KeyDialog() {
  const dialog = useRef<HTMLDialogElement>(null);
  const field = useRef<HTMLInputElement>(null);
  useEffect(() => {
    if (keyWanted.value && !dialog.current!.open) dialog.current!.showModal();
    if (!keyWanted.value && dialog.current!.open) dialog.current!.close();
  }, [keyWanted.value]);
  const take = (event: Event) => {
    event.preventDefault();
    takeKey(field.current!.value.trim());
    field.current!.value = "";
  };
  return (
    <dialog ref={dialog} aria-labelledby="key-title" onCancel={declineKey} onClose={() => (keyWanted.value = false)}>
      <form onSubmit={take}>
        <h2 id="key-title">API key</h2>
        <p class="quiet">{apiKey.value ? "Enter another API key: the server refused this one, or you want to change it." : "Enter the server's API key."} It stays in the memory of this tab, and is gone when you close it.</p>
        <input ref={field} id="key" type="password" aria-labelledby="key-title" autocomplete="off" spellcheck={false} />
        <div class="buttons">
          <button type="submit" class="primary">
            Use
          </button>
          <button type="button" onClick={declineKey}>
            Cancel
          </button>
        </div>
      </form>
    </dialog>
  );
}
