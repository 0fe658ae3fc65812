/** Requests to the server that this page came from, and the key that they carry. */

import { signal } from "@preact/signals";

/** The API key. It lives in this tab's memory alone: it is in no storage, no link, and no address. */
export const apiKey = signal("");

/** True while the server wants a key: no key was sent yet, or it was not taken. */
export const keyWanted = signal(false);

let isDeclined = false;

/** Opens the dialog for a key: somebody pressed a button. */
export function askForKey(): void {
  isDeclined = false;
  keyWanted.value = true;
}

/** Without a key, for now: what nobody pressed a button for does not ask again. */
export function declineKey(): void {
  isDeclined = true;
  keyWanted.value = false;
}

/** Has what follows carry `key`. */
export function takeKey(key: string): void {
  isDeclined = false;
  keyWanted.value = false;
  apiKey.value = key;
}

/** What the server says was wrong with a request. `pointer` leads to a place in the schema. */
export interface ServerError {
  message: string;
  type?: string | null;
  param?: string | null;
  code?: string | null;
  pointer?: string | null;
}

/** Address of `path` ("v1/models") on the server, also where that is served under a prefix. */
export function serverUrl(path: string): string {
  return new URL(path.replace(/^\//, ""), document.baseURI).href;
}

/**
 * `fetch` to the server this page came from, with the key if there is one. A 401 asks for a key (once for
 * all that fail, and not where none was given) and comes back as it is. Rejects as `fetch` does: no
 * connection, or aborted.
 */
export async function apiFetch(path: string, init: RequestInit = {}): Promise<Response> {
  const response = await requestWithKey(path, init);
  if (response.status === 401 && !isDeclined) keyWanted.value = true;
  return response;
}

/** The same for what nobody pressed a button for: it asks for no key. */
export async function requestWithKey(path: string, init: RequestInit = {}): Promise<Response> {
  const headers = new Headers(init.headers);
  if (apiKey.value) headers.set("authorization", `Bearer ${apiKey.value}`);
  if (typeof init.body === "string") headers.set("content-type", "application/json");
  return fetch(serverUrl(path), { ...init, headers, cache: "no-store", credentials: "omit" });
}

/** The error that a response without success tells of, in the server's own words. */
export async function errorOf(response: Response): Promise<ServerError> {
  const text = await response.text().catch(() => "");
  try {
    const { error } = JSON.parse(text);
    if (typeof error?.message === "string") return error;
  } catch {
    // no JSON: another server in between, perhaps
  }
  const said = text.trim().slice(0, 300);
  return { message: `${response.status} ${response.statusText}${said ? `: ${said}` : ""}` };
}
