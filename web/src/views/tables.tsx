import { useSignal } from "@preact/signals";
import { api, ApiError } from "../api/client";
import { type FileRow, type TableRow, TREATMENTS, type Treatment } from "../api/types";
import { Bar } from "../components/bar";
import { Name } from "../components/name";
import { type Column, SortedTable } from "../components/sorted-table";
import { bytes, number, percent, visible } from "../format";
import type { ServerStore } from "../state/server";
import { text } from "../state/text";

/** Rows shown at most; whoever has more tables finds one by its name. */
const MOST = 500;

type Counts = Pick<TableRow, "hits" | "misses" | "cached_pages" | "cached_bytes"> & { hit_ratio: number | null };

/** What a limit begins with. */
const LIMIT = 20;

function columns<Row extends Counts>(name: string, key: string, nameOf: (row: Row) => string): Column<Row>[] {
  const t = text.value.tables;
  return [
    { key, title: name, value: nameOf },
    { key: "hit_ratio", title: t.hitRatio, numeric: true, value: (row) => row.hit_ratio ?? -1, show: (row) => row.hit_ratio !== null && row.hits + row.misses > 0 ? <Bar value={row.hit_ratio} tone="cache">{percent(row.hit_ratio)}</Bar> : "–" },
    { key: "hits", title: t.hits, numeric: true, value: (row) => row.hits, show: (row) => number(row.hits) },
    { key: "misses", title: t.misses, numeric: true, value: (row) => row.misses, show: (row) => number(row.misses) },
    { key: "cached_bytes", title: t.cached, numeric: true, value: (row) => row.cached_bytes, show: (row) => bytes(row.cached_bytes) },
    { key: "cached_pages", title: t.pages, numeric: true, wide: true, value: (row) => row.cached_pages, show: (row) => number(row.cached_pages) },
  ];
}

/** The switch at a table: what the rules say of it. */
function RuleSwitch(props: { row: TableRow; busy: boolean; set: (row: TableRow, action: Treatment, percent?: number) => void }) {
  const t = text.value.tables;
  const { row, busy } = props;
  const name = visible(`${row.schema}.${row.table}`);
  return (
    <span class="rule">
      <select class="small" aria-label={t.ruleOf(name)} value={row.treatment} disabled={busy}
        onChange={(event) => {
          const action = event.currentTarget.value as Treatment;
          props.set(row, action, action === "limit" ? LIMIT : undefined);
        }}>
        {TREATMENTS.map((one) => <option key={one} value={one}>{t.treatments[one]}</option>)}
      </select>
      {row.treatment === "limit" && row.limit_percent !== null
        ? <input type="number" min={1} max={99} aria-label={t.limitOf(name)} value={row.limit_percent} disabled={busy}
            onChange={(event) => event.currentTarget.checkValidity() && props.set(row, "limit", Number(event.currentTarget.value))} />
        : null}
    </span>
  );
}

export function TablesView(props: { store: ServerStore }) {
  const t = text.value.tables;
  const details = props.store.details.value;
  const kind = useSignal<"table" | "file">("table");
  const wanted = useSignal("");
  const sought = wanted.value.trim().toLowerCase();
  const find = <Row,>(rows: Row[], nameOf: (row: Row) => string) => rows.filter((row) => nameOf(row).toLowerCase().includes(sought));
  const tableName = (row: TableRow) => `${row.schema}.${row.table}`;
  const fileName = (row: FileRow) => row.file;
  const tables = find(details?.tables ?? [], tableName);
  const files = find(details?.files ?? [], fileName);
  const byTable = kind.value === "table";
  const busy = useSignal(false);
  const outcome = useSignal<{ tone: string; text: string; more: string[]; english?: boolean } | null>(null);
  const hasRules = "bpe_tables" in (details?.settings ?? {});

  async function set(row: TableRow, action: Treatment, percent?: number): Promise<void> {
    busy.value = true;
    outcome.value = null;
    try {
      const answer = await api.table(props.store.id, { schema: row.schema, table: row.table, action, ...(percent === undefined ? {} : { percent }) });
      outcome.value = { tone: "good", text: t.ruleSet(visible(tableName(row)), t.treatments[action]), more: answer.warnings };
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      outcome.value = { tone: "bad", text: error.message, more: error.advice ? [error.advice] : [], english: true };
    } finally {
      await props.store.readDetails();
      busy.value = false;
    }
  }

  const rule: Column<TableRow> = {
    key: "treatment", title: t.rule, value: (row) => row.treatment,
    show: (row) => <RuleSwitch row={row} busy={busy.value} set={(...wanted) => void set(...wanted)} />,
  };
  const fileRule: Column<FileRow> = { key: "rule", title: t.rule, wide: true, value: (row) => row.rule ?? "" };
  const found = byTable ? tables.length : files.length;
  return (
    <section aria-labelledby="tables-title">
      <h2 id="tables-title">{t.title}</h2>
      <div class="bar-of-controls">
        <div role="group" aria-label={t.kind}>
          <button type="button" class="chip" aria-pressed={byTable} onClick={() => (kind.value = "table")}>{t.byTable}</button>
          <button type="button" class="chip" aria-pressed={!byTable} onClick={() => (kind.value = "file")}>{t.byFile}</button>
        </div>
        <label class="find"><span>{t.filter}</span><input type="search" value={wanted.value} onInput={(event) => (wanted.value = event.currentTarget.value)} /></label>
        <span class="note" role="status">{t.shown(number(Math.min(found, MOST)), number((byTable ? details?.tables.length : details?.files.length) ?? 0))}</span>
      </div>
      {hasRules && byTable ? <p class="note">{t.ruleHint}</p> : null}
      <div role="status">
        {outcome.value && (
          <p class={`banner ${outcome.value.tone}`} lang={outcome.value.english ? "en" : undefined}>
            {visible(outcome.value.text)} {outcome.value.more.map((one, i) => <span key={i} lang="en"><Name text={one} /> </span>)}
          </p>
        )}
      </div>
      {found === 0 && sought === "" ? <p class="note">{t.none}</p>
        : byTable ? <SortedTable caption={t.byTable} first="hits" columns={[...columns<TableRow>(t.table, "table", tableName), ...(hasRules ? [rule] : [])]} rows={tables.slice(0, MOST)} identity={tableName} key="tables" />
        : <SortedTable caption={t.byFile} first="hits" columns={[...columns<FileRow>(t.file, "file", fileName), ...(hasRules ? [fileRule] : [])]} rows={files.slice(0, MOST)} identity={fileName} key="files" />}
    </section>
  );
}
