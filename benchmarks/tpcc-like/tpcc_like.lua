#!/usr/bin/env sysbench
-- A load like TPC-C: its tables with their widths and random text, its five transactions in their shares, and its uneven
-- choice of customers and items (NURand), as the standard describes them (TPC-C 5.11, clauses 1.3, 2.1.6, 2.4 to 2.8). It is not
-- TPC-C: no think times, no terminals, no checks, fewer columns where they hold nothing.

sysbench.cmdline.options = {
   warehouses = {"Number of warehouses, about 75 MiB each", 4},
}
sysbench.cmdline.commands = {
   prepare = {function() prepare() end, sysbench.cmdline.PARALLEL_COMMAND},
}

local DISTRICTS, CUSTOMERS, ITEMS, ORDERS = 10, 3000, 100000, 3000
local rand = sysbench.rand.uniform

-- Slices of one long random text: as hard to compress as letters drawn anew, and much cheaper.
local text
local function letters(least, most)
   if not text then
      local parts = {}
      for i = 1, 8192 do
         parts[i] = sysbench.rand.string(string.rep("@", 128))
      end
      text = table.concat(parts)
   end
   local length = rand(least, most)
   local from = rand(1, #text - length)
   return text:sub(from, from + length - 1)
end

-- NURand of clause 2.1.6, with a constant of 0.
local function uneven(a, x, y)
   return bit.bor(rand(0, a), rand(x, y)) % (y - x + 1) + x
end

local definitions = {
   [[item (i_id INT PRIMARY KEY, i_name VARCHAR(24) NOT NULL, i_price DECIMAL(5,2) NOT NULL, i_data VARCHAR(50) NOT NULL)]],
   [[stock (s_w_id INT, s_i_id INT, s_quantity INT NOT NULL, s_dists CHAR(240) NOT NULL, s_ytd INT NOT NULL DEFAULT 0,
      s_orders INT NOT NULL DEFAULT 0, s_data VARCHAR(50) NOT NULL, PRIMARY KEY (s_w_id, s_i_id))]],
   [[customer (c_w_id INT, c_d_id INT, c_id INT, c_first VARCHAR(16) NOT NULL, c_last VARCHAR(16) NOT NULL,
      c_address VARCHAR(80) NOT NULL, c_phone CHAR(16) NOT NULL, c_balance DECIMAL(12,2) NOT NULL DEFAULT 0,
      c_payments INT NOT NULL DEFAULT 0, c_data VARCHAR(500) NOT NULL, PRIMARY KEY (c_w_id, c_d_id, c_id))]],
   [[orders (o_w_id INT, o_d_id INT, o_id INT, o_c_id INT NOT NULL, o_entry DATETIME NOT NULL, o_lines INT NOT NULL,
      PRIMARY KEY (o_w_id, o_d_id, o_id), KEY (o_w_id, o_d_id, o_c_id, o_id))]],
   [[order_line (ol_w_id INT, ol_d_id INT, ol_o_id INT, ol_number INT, ol_i_id INT NOT NULL, ol_delivery DATETIME,
      ol_quantity INT NOT NULL, ol_amount DECIMAL(6,2) NOT NULL, ol_dist CHAR(24) NOT NULL,
      PRIMARY KEY (ol_w_id, ol_d_id, ol_o_id, ol_number))]],
}

local function fill(connection, into, count, row)
   connection:bulk_insert_init("INSERT INTO " .. into .. " VALUES")
   for n = 1, count do
      connection:bulk_insert_next(row(n))
   end
   connection:bulk_insert_done()
end

-- Each thread makes every so many-th warehouse; the first makes the tables before.
function prepare()
   local connection = sysbench.sql.driver():connect()
   if sysbench.tid == 0 then
      for _, definition in ipairs(definitions) do
         connection:query("CREATE TABLE " .. definition .. " ENGINE=InnoDB")
      end
      fill(connection, "item", ITEMS, function(n)
         return string.format("(%d,'%s',%d.50,'%s')", n, letters(14, 24), rand(1, 100), letters(26, 50))
      end)
   else
      while not pcall(function() connection:query("SELECT 1 FROM order_line LIMIT 1") end) do
         os.execute("sleep 0.2")
      end
   end
   for w = sysbench.tid + 1, sysbench.opt.warehouses, sysbench.opt.threads do
      fill(connection, "stock", ITEMS, function(n)
         return string.format("(%d,%d,%d,'%s',0,0,'%s')", w, n, rand(10, 100), letters(240, 240), letters(26, 50))
      end)
      for d = 1, DISTRICTS do
         fill(connection, "customer", CUSTOMERS, function(n)
            return string.format("(%d,%d,%d,'%s','%s','%s','%s',-10,1,'%s')", w, d, n, letters(8, 16), letters(9, 15),
               letters(50, 80), string.format("%016d", rand(0, 999999999)), letters(300, 500))
         end)
         local lines = {}
         fill(connection, "orders", ORDERS, function(n)
            lines[n] = rand(5, 15)
            return string.format("(%d,%d,%d,%d,NOW(),%d)", w, d, n, rand(1, CUSTOMERS), lines[n])
         end)
         for o = 1, ORDERS do
            local rows = {}
            for l = 1, lines[o] do
               rows[l] = string.format("(%d,%d,%d,%d,%d,NOW(),5,%d.25,'%s')", w, d, o, l, rand(1, ITEMS), rand(0, 999),
                  letters(24, 24))
            end
            connection:query("INSERT INTO order_line VALUES " .. table.concat(rows, ","))
         end
      end
   end
end

local connection, next_order

function thread_init()
   connection = sysbench.sql.driver():connect()
   -- Numbers of its own for each thread and run, so that no two meet.
   next_order = ORDERS + (os.time() % 2000) * 1000000 + sysbench.tid * 10000
end

local function place()
   return rand(1, sysbench.opt.warehouses), rand(1, DISTRICTS)
end

local function query(text, ...)
   return connection:query(string.format(text, ...))
end

local function new_order()
   local w, d = place()
   next_order = next_order + 1
   local count, items = rand(5, 15), {}
   for n = 1, count do
      items[n] = uneven(8191, 1, ITEMS)
   end
   table.sort(items) -- no two transactions lock stock in opposite orders
   query("SELECT c_last, c_balance FROM customer WHERE c_w_id=%d AND c_d_id=%d AND c_id=%d", w, d, uneven(1023, 1, CUSTOMERS))
   query("INSERT INTO orders VALUES (%d,%d,%d,%d,NOW(),%d)", w, d, next_order, uneven(1023, 1, CUSTOMERS), count)
   for n, item in ipairs(items) do
      local from = rand(1, 100) == 1 and rand(1, sysbench.opt.warehouses) or w
      query("SELECT i_price, i_name, i_data FROM item WHERE i_id=%d", item)
      query("SELECT s_quantity, s_dists, s_data FROM stock WHERE s_w_id=%d AND s_i_id=%d FOR UPDATE", from, item)
      query("UPDATE stock SET s_quantity=IF(s_quantity>15,s_quantity-5,s_quantity+86), s_ytd=s_ytd+5, s_orders=s_orders+1 " ..
         "WHERE s_w_id=%d AND s_i_id=%d", from, item)
      query("INSERT INTO order_line VALUES (%d,%d,%d,%d,%d,NULL,5,%d.25,'%s')", w, d, next_order, n, item, rand(0, 999),
         letters(24, 24))
   end
end

local function payment()
   local w, d = place()
   query("UPDATE customer SET c_balance=c_balance-%d, c_payments=c_payments+1 WHERE c_w_id=%d AND c_d_id=%d AND c_id=%d",
      rand(1, 5000), w, d, uneven(1023, 1, CUSTOMERS))
end

local function order_status()
   local w, d = place()
   local customer = uneven(1023, 1, CUSTOMERS)
   query("SELECT c_first, c_last, c_balance FROM customer WHERE c_w_id=%d AND c_d_id=%d AND c_id=%d", w, d, customer)
   query("SELECT ol_i_id, ol_quantity, ol_amount FROM order_line JOIN (SELECT MAX(o_id) AS o FROM orders WHERE o_w_id=%d AND " ..
      "o_d_id=%d AND o_c_id=%d) latest ON ol_o_id=o WHERE ol_w_id=%d AND ol_d_id=%d", w, d, customer, w, d)
end

local function delivery()
   local w, d = place()
   query("UPDATE order_line SET ol_delivery=NOW() WHERE ol_w_id=%d AND ol_d_id=%d AND ol_o_id=%d", w, d, rand(1, ORDERS))
end

local function stock_level()
   local w, d = place()
   local last = rand(20, ORDERS)
   query("SELECT COUNT(DISTINCT s_i_id) FROM order_line JOIN stock ON s_w_id=ol_w_id AND s_i_id=ol_i_id WHERE ol_w_id=%d AND " ..
      "ol_d_id=%d AND ol_o_id BETWEEN %d AND %d AND s_quantity < 15", w, d, last - 19, last)
end

function event()
   local draw = rand(1, 100)
   local transaction = draw <= 45 and new_order or draw <= 88 and payment or draw <= 92 and order_status or
      draw <= 96 and delivery or stock_level
   connection:query("BEGIN")
   transaction()
   connection:query("COMMIT")
end

function thread_done()
   connection:disconnect()
end
