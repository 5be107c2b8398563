// What is tested: the pretended console (--mock), or a real one that another program has started and controls (--url).
//
// That program reads commands from our standard output, lines that begin with `do: `, and answers each with a line on our
// standard input: `ok`, or what went wrong. Commands: kill-server, start-server, kill-console, start-console. Only the pretended console has
// refuse-reports and give-reports: as with an account that lacks the PROCESS privilege.

import { createInterface } from "node:readline";
import { MockConsole } from "../../mock/console.mjs";

/**
 * @typedef {object} Subject
 * @property {string} url
 * @property {string} token
 * @property {string} server the name of the server that is looked at
 * @property {string} path a cache path that the server can use
 * @property {string} size
 * @property {string} seconds of each phase of an experience
 * @property {boolean} experience whether there is an experience page
 * @property {boolean} real whether it is no pretended console
 * @property {string | null} cluster the name of the server's cluster; that of the pretended console has one called `replica` besides, which is away
 * @property {string | null} replica the name of a replica of the server, which can be switched with it
 * @property {boolean} refuses whether it has the commands refuse-reports and give-reports
 * @property {(command: string) => Promise<void>} do
 * @property {() => Promise<void>} end
 */

/** @returns {Promise<Subject>} */
export async function pretended() {
  const mock = new MockConsole({ token: "a-token-of-the-test" });
  const url = await mock.open();
  /** @type {Record<string, () => unknown>} */
  const commands = {
    "kill-server": () => mock.setReachable(false),
    "start-server": () => mock.setReachable(true),
    "refuse-reports": () => (mock.demo.latencyRefused = true),
    "give-reports": () => (mock.demo.latencyRefused = false),
    "kill-console": () => mock.shut(),
    "start-console": () => mock.open(),
  };
  return {
    url, token: mock.token, server: "demo", path: "/mnt/nvme/bpe", size: "1G", seconds: "5", experience: true, real: false, cluster: "shop", replica: null, refuses: true,
    do: async (command) => void (await commands[command]?.()),
    end: () => mock.end(),
  };
}

/** @param {Record<string, string>} options @returns {Subject} */
export function real(options) {
  const input = createInterface({ input: process.stdin });
  const answers = input[Symbol.asyncIterator]();
  const { url = "", token = "", server = "", path = "", size = "", seconds = "3", cluster = null, replica = null } = options;
  return {
    url, token, server, path, size, seconds, experience: "experience" in options, real: true, cluster, replica, refuses: false,
    do: async (command) => {
      console.log(`do: ${command}`);
      const { value } = await answers.next();
      if (value !== "ok") throw new Error(`${command}: ${value}`);
    },
    end: async () => input.close(),
  };
}
