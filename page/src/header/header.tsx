/** The header of the page: name, tabs, and buttons for the link, the key and the theme. */

import { useSignal } from "@preact/signals";

import { apiKey, askForKey, tab, themeChoice, type Tab } from "../state";
import { linkToPage } from "../link";
import { Tabs } from "../ui/tabs";

const TABS: readonly { id: Tab; label: string }[] = [
  { id: "playground", label: "Playground" },
  { id: "code", label: "Code" },
  { id: "operations", label: "Operations" },
];

export function Header() {
  return (
    <header class="top">
      <h1>
        <img src="page/icon.svg" width="26" height="26" alt="" />
        Leapjson
      </h1>
      <Tabs label="Page" prefix="page" tabs={TABS} chosen={tab} />
      <div class="right">
        <LinkButton />
        <button type="button" class="plain" onClick={askForKey}>
          {apiKey.value ? "Key ✓" : "Key"}
        </button>
        <ThemeButton />
      </div>
    </header>
  );
}

function LinkButton() {
  const said = useSignal("Link");
  const link = async () => {
    const address = await linkToPage();
    history.replaceState(null, "", address);
    said.value = await navigator.clipboard?.writeText(address).then(
      () => "Copied",
      () => "In the address bar",
    ) ?? "In the address bar";
    setTimeout(() => (said.value = "Link"), 2000);
  };
  return (
    <button type="button" class="plain" id="link" title="Link to this request without its pictures. The request is in the link itself; nothing is sent." onClick={link}>
      <span aria-live="polite">{said.value}</span>
    </button>
  );
}

const NEXT = { auto: "light", light: "dark", dark: "auto" } as const;
const SIGNS = { auto: "◐", light: "○", dark: "●" } as const;
const WORDS = { auto: "as the system", light: "light", dark: "dark" } as const;

function ThemeButton() {
  const choice = themeChoice.value;
  return (
    <button type="button" class="plain" id="theme" aria-label={`Theme: ${WORDS[choice]}`} title={`Theme: ${WORDS[choice]}`} onClick={() => (themeChoice.value = NEXT[choice])}>
      <span aria-hidden="true">{SIGNS[choice]}</span>
    </button>
  );
}
