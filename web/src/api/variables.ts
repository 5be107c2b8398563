// Made by `cargo run -p interface --example generate` from crates/interface/src/variables.rs. Change it there.

export interface Variable {
  name: string;
  kind: "text" | "size" | "count" | "choice";
  choices: string[];
  /** Changing it while on makes the cache anew. */
  rebuilds: boolean;
  hint: { en: string; ja: string; "zh-TW": string };
}

export const VARIABLES: Variable[] = [
  {"choices":[],"hint":{"en":"Folders or files on fast disks, separated by :.","ja":"高速ディスク上のフォルダーまたはファイル。: で区切ります。","zh-TW":"高速磁碟上的資料夾或檔案，以 : 分隔。"},"kind":"text","name":"bpe_path","rebuilds":true},
  {"choices":[],"hint":{"en":"All disks together, such as 100G.","ja":"全ディスクの合計。例: 100G。","zh-TW":"所有磁碟合計，例如 100G。"},"kind":"size","name":"bpe_size","rebuilds":true},
  {"choices":[],"hint":{"en":"Parts of the cache, each with its own lock; 0: by the number of cores.","ja":"それぞれロックを持つ部分の数。0 はコア数に応じて決定。","zh-TW":"各有一把鎖的部分數；0：依核心數決定。"},"kind":"count","name":"bpe_instances","rebuilds":true},
  {"choices":[],"hint":{"en":"16 KiB writes a second to the cache disks; 0: no limit.","ja":"キャッシュディスクへの 16 KiB 書き込みの毎秒上限。0 は無制限。","zh-TW":"每秒寫入快取磁碟的 16 KiB 次數；0：不限。"},"kind":"count","name":"bpe_io_capacity","rebuilds":false},
  {"choices":[],"hint":{"en":"Such as 64M; 0: what the size needs.","ja":"例: 64M。0 はサイズに応じた量。","zh-TW":"例如 64M；0：依大小所需。"},"kind":"size","name":"bpe_memory_limit","rebuilds":true},
  {"choices":["off","lz4"],"hint":{"en":"Pages that shrink by an eighth are stored compressed.","ja":"8 分の 1 以上縮むページを圧縮して保存します。","zh-TW":"能縮小八分之一以上的頁面會壓縮儲存。"},"kind":"choice","name":"bpe_compression","rebuilds":true},
  {"choices":[],"hint":{"en":"Bytes written to the cache disks in 24 hours, such as 500G; 0: no limit.","ja":"キャッシュディスクへの 24 時間の書き込み上限。例: 500G。0 は無制限。","zh-TW":"24 小時內寫入快取磁碟的位元組，例如 500G；0：不限。"},"kind":"size","name":"bpe_daily_write_limit","rebuilds":false},
  {"choices":[],"hint":{"en":"Rules for tables: exclude shop.log_*, limit 20% reports.*, prefer shop.orders.","ja":"テーブルのルール。例: exclude shop.log_*, limit 20% reports.*, prefer shop.orders","zh-TW":"資料表的規則，例如 exclude shop.log_*, limit 20% reports.*, prefer shop.orders。"},"kind":"text","name":"bpe_tables","rebuilds":false},
];
