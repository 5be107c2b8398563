import { useSignal } from "@preact/signals";
import type { FileRow, TableRow } from "../api/types";
import { Bar } from "../components/bar";
import { type Column, SortedTable } from "../components/sorted-table";
import { bytes, number, percent } from "../format";
import type { ServerStore } from "../state/server";
import { text } from "../state/text";

/** Rows shown at most; whoever has more tables finds one by its name. */
const MOST = 500;

type Counts = Omit<TableRow, "schema" | "table">;

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
      {found === 0 && sought === "" ? <p class="note">{t.none}</p>
        : byTable ? <SortedTable caption={t.byTable} first="hits" columns={columns<TableRow>(t.table, "table", tableName)} rows={tables.slice(0, MOST)} identity={tableName} key="tables" />
        : <SortedTable caption={t.byFile} first="hits" columns={columns<FileRow>(t.file, "file", fileName)} rows={files.slice(0, MOST)} identity={fileName} key="files" />}
    </section>
  );
}
