/** Server-sent events of a streamed answer. */

/** The stream ended before its last event: the server died, or a proxy closed the connection. */
export class StreamBroken extends Error {
  constructor() {
    super("The connection closed before the end of the answer.");
  }
}

/** The objects of a stream, in order, until `[DONE]`. Throws `StreamBroken` if it ends without. */
export async function* eventsOf(response: Response): AsyncGenerator<unknown> {
  const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { value, done } = await reader.read().catch((error: unknown) => {
        if (error instanceof DOMException && error.name === "AbortError") throw error;
        throw new StreamBroken();
      });
      if (done) throw new StreamBroken();
      const events = (rest + value).split(/\r?\n\r?\n/);
      rest = events.pop()!;
      for (const event of events) {
        const data = dataOf(event);
        if (data === "[DONE]") return;
        if (data !== "") yield JSON.parse(data);
      }
    }
  } finally {
    void reader.cancel().catch(() => {});
  }
}

/** The `data` lines of an event; "" for a comment, such as a ping. */
function dataOf(event: string): string {
  return event
    .split(/\r?\n/)
    .filter((line) => line.startsWith("data:"))
    .map((line) => line.slice(5).trimStart())
    .join("\n");
}
