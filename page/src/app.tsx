/** The page: a header, and one of three tabs. */

import { KeyDialog } from "./header/key_dialog";
import { Header } from "./header/header";
import { lazyTab } from "./lazy";
import { Playground } from "./playground/playground";
import { tab } from "./state";
import { TabPanel } from "./ui/tabs";

const Operations = lazyTab(() => import("./operations/operations").then((module) => module.Operations));
const Code = lazyTab(() => import("./code/code").then((module) => module.Code));

export function App() {
  return (
    <>
      <Header />
      <main>
        <TabPanel prefix="page" id="playground" chosen={tab}>
          <Playground />
        </TabPanel>
        <TabPanel prefix="page" id="operations" chosen={tab}>
          {tab.value === "operations" && <Operations />}
        </TabPanel>
        <TabPanel prefix="page" id="code" chosen={tab}>
          {tab.value === "code" && <Code />}
        </TabPanel>
      </main>
      <footer>
        <a href="docs">API</a> · <a href="openapi.json">openapi.json</a> · <a href="metrics">metrics</a> · <a href="page/licenses.txt">licences</a>
      </footer>
      <KeyDialog />
    </>
  );
}
