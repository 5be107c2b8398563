// What the modules under test expect of a browser. Imported before them.

const define = (name: string, value: unknown) => Object.defineProperty(globalThis, name, { value, configurable: true });

const kept = new Map<string, string>();
define("navigator", { languages: ["en-US"] });
define("location", { hash: "", pathname: "/", search: "" });
define("history", { replaceState: (_state: unknown, _title: string, address: string) => (location.hash = address.split("#")[1] ?? "") });
define("sessionStorage", {
  getItem: (key: string) => kept.get(key) ?? null,
  setItem: (key: string, value: string) => void kept.set(key, value),
  removeItem: (key: string) => void kept.delete(key),
  clear: () => kept.clear(),
});
