-- Minimum cost supplier: who in Europe sells each brass part of size 15 at the lowest cost.
WITH europe AS (
  SELECT ps_partkey, ps_supplycost, s_acctbal, s_name, n_name, s_address, s_phone, s_comment
  FROM partsupp
  JOIN supplier ON s_suppkey = ps_suppkey
  JOIN nation ON n_nationkey = s_nationkey
  JOIN region ON r_regionkey = n_regionkey
  WHERE r_name = 'EUROPE'
),
cheapest AS (
  SELECT ps_partkey AS cheapest_partkey, min(ps_supplycost) AS lowest FROM europe GROUP BY ps_partkey
)
SELECT s_acctbal, s_name, n_name, p_partkey, p_mfgr, s_address, s_phone, s_comment
FROM part
JOIN europe ON ps_partkey = p_partkey
JOIN cheapest ON cheapest_partkey = p_partkey AND lowest = ps_supplycost
WHERE p_size = 15 AND p_type LIKE '%BRASS'
ORDER BY s_acctbal DESC, n_name, s_name, p_partkey
LIMIT 100
