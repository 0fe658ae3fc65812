/** Components whose code is loaded when they are first shown. */

import { signal } from "@preact/signals";
import type { FunctionComponent } from "preact";
import { useEffect } from "preact/hooks";

/** A component that shows the one from `load` once it is loaded. */
export function lazyTab(load: () => Promise<FunctionComponent>): FunctionComponent {
  const loaded = signal<FunctionComponent | null>(null);
  const failed = signal(false);
  return function Lazy() {
    useEffect(() => {
      if (loaded.value === null) {
        load().then(
          (component) => (loaded.value = component),
          () => (failed.value = true),
        );
      }
    }, []);
    if (loaded.value) return <loaded.value />;
    return <p class="quiet">{failed.value ? "This part could not be loaded; is the server still running?" : "Loading …"}</p>;
  };
}
