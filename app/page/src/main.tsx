import { render } from "preact";
import { App } from "./app";
import "./styles/colours.css";
import "./styles/base.css";

render(<App />, document.getElementById("page")!);
