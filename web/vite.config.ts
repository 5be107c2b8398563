import { readFileSync } from "node:fs";
import { defineConfig, type Plugin } from "vite";

/** The licences of the libraries that become part of the page, which ask to go with them. */
function licences(): Plugin {
  const read = (path: string) => readFileSync(new URL(path, import.meta.url), "utf8");
  const { dependencies } = JSON.parse(read("package.json")) as { dependencies: Record<string, string> };
  const source = Object.keys(dependencies).concat("@preact/signals-core")
    .map((name) => `${name}\n\n${read(`node_modules/${name}/LICENSE`).trim()}\n`).join("\n----\n\n");
  return {
    name: "licences",
    generateBundle() {
      this.emitFile({ type: "asset", fileName: "licences.txt", source });
    },
  };
}

// The console serves the page with `default-src 'self'`: nothing may be inlined as a data URL, and there is no inline script.
export default defineConfig({
  base: "./",
  plugins: [licences()],
  build: {
    target: "es2021",
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    reportCompressedSize: false,
    rollupOptions: {
      output: {
        // The names change with the contents, so that the console may let browsers keep them.
        entryFileNames: "assets/[name]-[hash].js",
        assetFileNames: "assets/[name]-[hash][extname]",
      },
    },
  },
  server: {
    host: "127.0.0.1",
    port: 5173,
    // `npm run mock` answers there; a real console is as good: BPE_CONSOLE=http://127.0.0.1:PORT npm run dev
    proxy: { "/api": { target: process.env["BPE_CONSOLE"] ?? "http://127.0.0.1:5174", changeOrigin: true } },
  },
});
