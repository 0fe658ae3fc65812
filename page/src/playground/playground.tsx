/** The first tab: a request on the left, its answer on the right. */

import { Answer } from "../answer/answer";
import { RequestForm } from "../request/request_form";
import "./playground.css";

export function Playground() {
  return (
    <div class="playground">
      <RequestForm />
      <Answer />
    </div>
  );
}
