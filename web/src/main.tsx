import { render } from "preact";
import { App } from "./app";
import { startPreferences } from "./state/preferences";
import { startRouting } from "./state/route";
import { findToken } from "./state/session";
import "./styles/base.css";
import "./styles/parts.css";
import "./styles/views.css";

startPreferences();
findToken();
startRouting();
render(<App />, document.getElementById("page")!);
