import type { StepState, Task } from "../api/types";
import { Said } from "../components/said";
import { text } from "../state/text";

const MARKS: Record<StepState, string> = { waiting: "○", running: "◐", done: "✓", failed: "✕", undone: "↺", remains: "!" };

/** The steps of a task, and how it ended. New steps are read out. The heading is of the level below what is around it. */
export function TaskSteps(props: { task: Task; heading?: "h2" | "h3" }) {
  const t = text.value.switch;
  const Heading = props.heading ?? "h3";
  const task = props.task;
  return (
    <div class="task" data-task={task.state}>
      <Heading><Said text={task.title} /></Heading>
      <ol class="steps" aria-live="polite">
        {task.steps.map((step, i) => (
          <li key={i} class={step.state}>
            <span class="mark" aria-hidden="true">{MARKS[step.state] ?? "○"}</span>
            <Said text={step.text} /> <span class={step.state === "undone" || step.state === "remains" ? "outcome" : "unseen"}>({t.steps[step.state]})</span>
          </li>
        ))}
      </ol>
      <div role="status">
        {task.state === "done" && <p class="banner good">{t.done}</p>}
        {task.state === "failed" && (
          <p class="banner bad">{t.failed} <Said text={task.error} /> <Said class="advice" text={task.advice} /></p>
        )}
      </div>
    </div>
  );
}
