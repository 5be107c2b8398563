// A table that is sorted by a click on (or Enter in) the head of a column.

import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { Name } from "./name";
import { text } from "../state/text";

export interface Column<Row> {
  key: string;
  title: string;
  value: (row: Row) => number | string;
  show?: (row: Row) => ComponentChildren;
  numeric?: boolean;
  /** Left out where the window is narrow. */
  wide?: boolean;
}

export function sortRows<Row>(rows: readonly Row[], value: (row: Row) => number | string, descending: boolean): Row[] {
  const sign = descending ? -1 : 1;
  return [...rows].sort((a, b) => {
    const [x, y] = [value(a), value(b)];
    if (typeof x === "number" && typeof y === "number") return sign * (x - y);
    return sign * String(x).localeCompare(String(y));
  });
}

export function SortedTable<Row>(props: {
  caption: string; columns: Column<Row>[]; rows: readonly Row[]; identity: (row: Row) => string; first: string;
}) {
  const [by, setBy] = useState({ key: props.first, descending: true });
  const column = props.columns.find((one) => one.key === by.key) ?? props.columns[0]!;
  const rows = sortRows(props.rows, column.value, by.descending);
  const sort = (chosen: Column<Row>) =>
    setBy({ key: chosen.key, descending: chosen.key === by.key ? !by.descending : chosen.numeric === true });
  return (
    <div class="scroll card sorted" tabIndex={0} role="region" aria-label={props.caption}>
      <table>
        <caption class="unseen">{props.caption}</caption>
        <thead>
          <tr>
            {props.columns.map((one) => (
              <th key={one.key} scope="col" class={classOf(one)}
                aria-sort={one.key !== column.key ? "none" : by.descending ? "descending" : "ascending"}>
                <button type="button" class="sort" title={text.value.tables.sortBy(one.title)} onClick={() => sort(one)}>
                  {one.title}
                  <span aria-hidden="true" class="arrow">{one.key !== column.key ? "" : by.descending ? "▾" : "▴"}</span>
                </button>
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <tr key={props.identity(row)}>
              {props.columns.map((one, i) => {
                const value = one.show ? one.show(row) : one.value(row);
                const shown = typeof value === "string" ? <Name text={value} /> : value;
                return i === 0 ? <th key={one.key} scope="row" class={classOf(one)}>{shown}</th>
                  : <td key={one.key} class={classOf(one)}>{shown}</td>;
              })}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function classOf<Row>(column: Column<Row>): string {
  return [column.numeric ? "number" : "", column.wide ? "wide" : ""].join(" ").trim();
}
