// npm run mock: the console's interface with pretended servers, for `npm run dev` beside it.

import { MockConsole } from "./console.mjs";

const mock = new MockConsole({ token: "mock", port: Number(process.env["PORT"] ?? 5174) });
console.log(`${await mock.open()}#token=mock (built page); npm run dev: http://127.0.0.1:5173/#token=mock`);
