// What the modules under test expect of a browser. Imported before them.

Object.defineProperty(globalThis, "navigator", { value: { languages: ["en-US"] }, configurable: true });
