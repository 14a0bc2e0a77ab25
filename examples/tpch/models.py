"""The rows of the eight TPC-H tables."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import Annotated

from pydantic import BaseModel, Field

Money = Annotated[Decimal, Field(max_digits=15, decimal_places=2)]


class Region(BaseModel):
    r_regionkey: int
    r_name: str
    r_comment: str


class Nation(BaseModel):
    n_nationkey: int
    n_name: str
    n_regionkey: int
    n_comment: str


class Supplier(BaseModel):
    s_suppkey: int
    s_name: str
    s_address: str
    s_nationkey: int
    s_phone: str
    s_acctbal: Money
    s_comment: str


class Customer(BaseModel):
    c_custkey: int
    c_name: str
    c_address: str
    c_nationkey: int
    c_phone: str
    c_acctbal: Money
    c_mktsegment: str
    c_comment: str


class Part(BaseModel):
    p_partkey: int
    p_name: str
    p_mfgr: str
    p_brand: str
    p_type: str
    p_size: int
    p_container: str
    p_retailprice: Money
    p_comment: str


class PartSupp(BaseModel):
    ps_partkey: int
    ps_suppkey: int
    ps_availqty: int
    ps_supplycost: Money
    ps_comment: str


class Order(BaseModel):
    o_orderkey: int
    o_custkey: int
    o_orderstatus: str
    o_totalprice: Money
    o_orderdate: date
    o_orderpriority: str
    o_clerk: str
    o_shippriority: int
    o_comment: str


class LineItem(BaseModel):
    l_orderkey: int
    l_partkey: int
    l_suppkey: int
    l_linenumber: int
    l_quantity: Money
    l_extendedprice: Money
    l_discount: Money
    l_tax: Money
    l_returnflag: str
    l_linestatus: str
    l_shipdate: date
    l_commitdate: date
    l_receiptdate: date
    l_shipinstruct: str
    l_shipmode: str
    l_comment: str


class OrderOfYear(Order):
    o_year: int


class LineItemOfYear(LineItem):
    l_year: int


TABLES: dict[str, type[BaseModel]] = {
    "region": Region,
    "nation": Nation,
    "supplier": Supplier,
    "customer": Customer,
    "part": Part,
    "partsupp": PartSupp,
    "orders": Order,
    "lineitem": LineItem,
}
