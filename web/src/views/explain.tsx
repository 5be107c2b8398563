import type { Sentence } from "../api/types";
import { sentenceText } from "../state/sentence";
import { text } from "../state/text";

/** "Does it help me?": sentences that the server's figures prove. */
export function ExplainPanel(props: { sentences: Sentence[] }) {
  const t = text.value.explain;
  return (
    <section class="card explain" aria-label={t.title}>
      <h2>{t.title}</h2>
      {props.sentences.length === 0 ? <p class="note">{t.empty}</p> : (
        <ul>
          {props.sentences.map((sentence) => {
            const shown = sentenceText(sentence);
            return <li key={sentence.text_key + sentence.text} data-key={sentence.text_key} class={`level-${sentence.level ?? "note"}`} lang={shown.translated ? undefined : "en"}>{shown.text}</li>;
          })}
        </ul>
      )}
      <p class="note">{t.note}</p>
    </section>
  );
}
