-- Important stock: parts that are a notable share of what German suppliers have in stock.
WITH germany AS (
  SELECT ps_partkey, ps_supplycost * ps_availqty AS part_value
  FROM partsupp
  JOIN supplier ON s_suppkey = ps_suppkey
  JOIN nation ON n_nationkey = s_nationkey
  WHERE n_name = 'GERMANY'
),
whole AS (SELECT sum(part_value) * 0.0001 AS threshold FROM germany)
SELECT ps_partkey, sum(part_value) AS stock_value
FROM germany
GROUP BY ps_partkey
HAVING sum(part_value) > (SELECT threshold FROM whole)
ORDER BY stock_value DESC, ps_partkey
