/** Requests to the server of this page, and the API key that they carry. */

import { signal } from "@preact/signals";

/** The API key. It is kept only in this tab's memory: not in storage, links or addresses. */
export const apiKey = signal("");

/** Whether the dialog for a key is open: after a 401, or when the user asked for it. */
export const keyWanted = signal(false);

let isDeclined = false;

/** Opens the dialog for a key after the user pressed a button. */
export function askForKey(): void {
  isDeclined = false;
  keyWanted.value = true;
}

/** Closes the dialog without a key: a later 401 does not open it again. */
export function declineKey(): void {
  isDeclined = true;
  keyWanted.value = false;
}

/** Sends `key` with all later requests. */
export function takeKey(key: string): void {
  isDeclined = false;
  keyWanted.value = false;
  apiKey.value = key;
}

/** An error of the API. `pointer` leads to a place in the schema. */
export interface ServerError {
  message: string;
  type?: string | null;
  param?: string | null;
  code?: string | null;
  pointer?: string | null;
}

/** URL of `path` ("v1/models") on the server, also if it is served under a prefix. */
export function serverUrl(path: string): string {
  return new URL(path.replace(/^\//, ""), document.baseURI).href;
}

/**
 * `fetch` to the server of this page, with the key if there is one. A 401 opens the dialog for a key
 * (unless the user has declined, or has given another key since) and is returned like any response.
 * Rejects as `fetch` does: no connection, or aborted.
 */
export async function apiFetch(path: string, init: RequestInit = {}): Promise<Response> {
  const key = apiKey.peek();
  const response = await requestWithKey(path, init);
  if (response.status === 401 && !isDeclined && apiKey.peek() === key) keyWanted.value = true;
  return response;
}

/** The same without the dialog, for requests that the user did not start. */
export async function requestWithKey(path: string, init: RequestInit = {}): Promise<Response> {
  const headers = new Headers(init.headers);
  if (apiKey.value) headers.set("authorization", `Bearer ${apiKey.value}`);
  if (typeof init.body === "string") headers.set("content-type", "application/json");
  return fetch(serverUrl(path), { ...init, headers, cache: "no-store", credentials: "omit" });
}

/** The error of an unsuccessful response, in the server's own words. */
export async function errorOf(response: Response): Promise<ServerError> {
  const text = await response.text().catch(() => "");
  try {
    const { error } = JSON.parse(text);
    if (typeof error?.message === "string") return error;
  } catch {
    // not JSON: perhaps from a proxy
  }
  const said = text.trim().slice(0, 300);
  return { message: `${response.status} ${response.statusText}${said ? `: ${said}` : ""}` };
}
