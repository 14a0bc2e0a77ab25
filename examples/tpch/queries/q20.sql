-- Potential promotion: Canadian suppliers with more forest parts in stock than half of a year's shipments.
WITH shipped AS (
  SELECT l_partkey, l_suppkey, 0.5 * sum(l_quantity) AS half
  FROM lineitem
  WHERE l_shipdate >= date '1994-01-01' AND l_shipdate < date '1995-01-01'
  GROUP BY l_partkey, l_suppkey
)
SELECT s_name, s_address
FROM supplier
JOIN nation ON n_nationkey = s_nationkey
WHERE n_name = 'CANADA'
  AND s_suppkey IN (
    SELECT ps_suppkey
    FROM partsupp
    JOIN shipped ON l_partkey = ps_partkey AND l_suppkey = ps_suppkey
    WHERE ps_availqty > half AND ps_partkey IN (SELECT p_partkey FROM part WHERE p_name LIKE 'forest%')
  )
ORDER BY s_name
