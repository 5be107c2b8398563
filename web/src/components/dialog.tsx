// A modal dialog. The browser keeps the focus inside, Esc closes it, and the focus goes back to where it was.

import type { ComponentChildren } from "preact";
import { useEffect, useId, useRef } from "preact/hooks";

export function Dialog(props: { title: string; onClose: () => void; children: ComponentChildren }) {
  const dialog = useRef<HTMLDialogElement>(null);
  const heading = useId();
  useEffect(() => {
    const before = document.activeElement;
    dialog.current?.showModal();
    return () => {
      dialog.current?.close();
      if (before instanceof HTMLElement) before.focus();
    };
  }, []);
  return (
    <dialog ref={dialog} class="dialog" aria-labelledby={heading} onClose={props.onClose}
      onClick={(event) => event.target === dialog.current && props.onClose()}>
      <div class="dialog-body">
        <h2 id={heading}>{props.title}</h2>
        {props.children}
      </div>
    </dialog>
  );
}
