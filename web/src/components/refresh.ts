import { useEffect } from "preact/hooks";

/** Calls at once and then every `ms`, while the page is seen. */
export function useRepeated(call: () => void, ms: number, key: unknown): void {
  useEffect(() => {
    call();
    const timer = setInterval(() => !document.hidden && call(), ms);
    return () => clearInterval(timer);
  }, [key]);
}
