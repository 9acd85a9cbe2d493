"""Translates each PTX instruction to C++, with the functions of thread.h and arithmetic.h.

A rule matches whole opcodes with every modifier. An unknown opcode raises an error, because the
effect of a modifier cannot be guessed. The semantics are those of NVIDIA's "PTX ISA", version 9.0.
"""

import re

import parse

TYPES = {
    "pred": "bool", "b8": "uint8_t", "u8": "uint8_t", "s8": "int8_t", "b16": "uint16_t",
    "u16": "uint16_t", "s16": "int16_t", "b32": "uint32_t", "u32": "uint32_t", "s32": "int32_t",
    "f32": "float", "b64": "uint64_t", "u64": "uint64_t", "s64": "int64_t", "f64": "double"}
SPECIAL = {
    "%tid.x": "t.thread", "%ntid.x": "t.threads", "%ctaid.x": "t.block", "%nctaid.x": "t.blocks",
    "%laneid": "t.thread % 32"}
# Shared memory does not begin at 0, so that no address in it is a null pointer.
SHARED_BASE = 1024


class UnknownOpcode(Exception):
  pass


class Body:
  """The context for the statements of one kernel: the types of its registers."""

  def __init__(self, kernel: parse.Kernel):
    self._kernel = kernel
    self._scopes: list[dict[str, str]] = [{}]

  def begin(self):
    self._scopes.append({})

  def end(self):
    self._scopes.pop()

  def declare(self, registers: parse.Registers) -> str:
    self._scopes[-1] |= dict.fromkeys(registers.names, registers.type)
    names = ", ".join(map(register, registers.names))
    return f"{TYPES[registers.type]} {names};" if registers.names else ""

  def statement(self, statement: parse.Statement) -> str:
    """Returns the statement in C++, or raises UnknownOpcode."""
    for pattern, rule in RULES:
      if found := pattern.fullmatch(statement.opcode):
        text = rule(self, statement, *found.groups())
        break
    else:
      raise UnknownOpcode(
          f"line {statement.line} of {self._kernel.name}: tests/ptx_emulator knows no opcode"
          f" {statement.opcode}")
    if statement.predicate:
      sense, name = re.fullmatch(r"@(!?)%(\w+)", statement.predicate).groups()
      text = f"if ({sense}{register(name)}) {{ {text} }}"
    return text

  def read(self, operand: str, kind: str) -> str:
    """Returns the operand as an expression of a PTX type."""
    type_ = TYPES[kind]
    if operand in SPECIAL:
      return f"static_cast<{type_}>({SPECIAL[operand]})"
    if operand.startswith("!"):
      return f"!{self.read(operand[1:], kind)}"
    if have := self._type_of(operand):
      name = register(operand.lstrip("%"))
      if TYPES[have] == type_:
        return name
      if "f" in (have[0], kind[0]):
        return f"Bits<{type_}>({name})"
      return f"static_cast<{type_}>({name})"
    if re.fullmatch("0[fF][0-9a-fA-F]{8}", operand):
      return f"Bits<{type_}>(uint32_t{{0x{operand[2:]}u}})"
    if re.fullmatch("0[dD][0-9a-fA-F]{16}", operand):
      return f"Bits<{type_}>(uint64_t{{0x{operand[2:]}ull}})"
    if re.fullmatch(r"-?\d+", operand) and kind[0] != "f":
      return f"static_cast<{type_}>({int(operand) % 2**64}ull)"
    if operand in self._kernel.parameters:
      return f"t.ParameterAddress({self._kernel.parameters.index(operand)})"
    if operand in self._kernel.shared:
      return f"static_cast<{type_}>({SHARED_BASE + self._kernel.shared[operand]})"
    raise parse.UnknownSyntax(f"the operand {operand} in {self._kernel.name}")

  def write(self, target: str, kind: str, value: str) -> str:
    """Returns the assignment of an expression of a PTX type, sign-extended if it is signed."""
    have = self._type_of(target)
    if have is None:
      raise parse.UnknownSyntax(f"the target {target} in {self._kernel.name}")
    name = register(target.lstrip("%"))
    value = f"static_cast<{TYPES[kind]}>({value})"
    if TYPES[have] != TYPES[kind]:
      cast = "Bits" if "f" in (have[0], kind[0]) else "static_cast"
      value = f"{cast}<{TYPES[have]}>({value})"
    return f"{name} = {value};"

  def address(self, operand: str, kind: str) -> str:
    base, offset = re.fullmatch(r"\[(%?[\w$]+)(?:\+(-?\d+))?\]", operand).groups()
    return f"{self.read(base, kind)} + static_cast<{TYPES[kind]}>({offset or 0})"

  def _type_of(self, operand: str) -> str | None:
    name = operand.lstrip("%")
    return next((x[name] for x in reversed(self._scopes) if name in x), None)


def register(name: str) -> str:
  return f"r_{name}"


def label(name: str) -> str:
  return "l_" + name.replace("$", "_")


RULES = []


def rule(pattern):
  """Decorates a function of the body, the statement and the groups of the opcode's pattern."""
  def add(function):
    RULES.append((re.compile(pattern), function))
    return function

  return add


def _unsigned(kind):
  """Sums and products wrap around, which C++ guarantees for unsigned types only."""
  return kind.replace("s", "u")


def _binary(body, s, kind, expression):
  a, b = (body.read(x, kind) for x in s.operands[1:])
  return body.write(s.operands[0], kind, expression.format(a=a, b=b, type=TYPES[kind]))


OPERATORS = {"add": "+", "sub": "-", "mul": "*", "and": "&", "or": "|", "xor": "^"}


@rule(r"(add|sub)\.([su](?:16|32|64))")
@rule(r"(mul)\.lo\.([su](?:32|64))")
def _wrap(body, s, name, kind):
  return _binary(body, s, _unsigned(kind), f"{{a}} {OPERATORS[name]} {{b}}")


@rule(r"(add|sub|mul)\.rn\.(f32|f64)")
@rule(r"(and|or|xor)\.(pred|b16|b32|b64)")
def _operator(body, s, name, kind):
  return _binary(body, s, kind, f"{{a}} {OPERATORS[name]} {{b}}")


@rule(r"(div)\.rn\.(f32|f64)")
def _divide(body, s, _, kind):
  return _binary(body, s, kind, "{a} / {b}")


@rule(r"(div|rem)\.([su](?:32|64))")
def _divide_integers(body, s, name, kind):
  return _binary(body, s, kind, f"{name.capitalize()}({{a}}, {{b}})")


@rule(r"(min|max)\.([su](?:16|32|64))")
def _bound(body, s, name, kind):
  return _binary(body, s, kind, f"std::{name}<{{type}}>({{a}}, {{b}})")


@rule(r"(min|max)\.(f32|f64)")
def _bound_floats(body, s, name, kind):
  return _binary(body, s, kind, f"{name.capitalize()}({{a}}, {{b}})")


@rule(r"copysign\.(f32|f64)")
def _copysign(body, s, kind):  # the sign of the first and the magnitude of the second
  return _binary(body, s, kind, "std::copysign({b}, {a})")


@rule(r"mul\.(wide|hi)\.([su])(16|32)")
def _wide(body, s, part, sign, bits):
  kind, twice = sign + bits, sign + str(2 * int(bits))
  a, b = (f"static_cast<{TYPES[twice]}>({body.read(x, kind)})" for x in s.operands[1:])
  if part == "wide":
    return body.write(s.operands[0], twice, f"{a} * {b}")
  return body.write(s.operands[0], kind, f"({a} * {b}) >> {bits}")


@rule(r"mul\.hi\.(u64)")
def _high_half(body, s, kind):
  a, b = (f"static_cast<unsigned __int128>({body.read(x, kind)})" for x in s.operands[1:])
  return body.write(s.operands[0], kind, f"({a} * {b}) >> 64")


@rule(r"mad\.lo\.([su](?:32|64))")
def _multiply_add(body, s, kind):
  a, b, c = (body.read(x, _unsigned(kind)) for x in s.operands[1:])
  return body.write(s.operands[0], _unsigned(kind), f"{a} * {b} + {c}")


@rule(r"fma\.rn\.(f32|f64)")
def _fma(body, s, kind):
  return body.write(
      s.operands[0], kind, f"std::fma({', '.join(body.read(x, kind) for x in s.operands[1:])})")


def _unary(body, s, kind, expression):
  return body.write(s.operands[0], kind, expression.format(body.read(s.operands[1], kind)))


@rule(r"neg\.(s32|s64)")
def _negate(body, s, kind):
  return _unary(body, s, _unsigned(kind), "0 - {}")


@rule(r"neg\.(f32|f64)")
def _negate_float(body, s, kind):
  return _unary(body, s, kind, "-{}")


@rule(r"abs\.(f32|f64)")
def _abs(body, s, kind):
  return _unary(body, s, kind, "std::abs({})")


@rule(r"sqrt\.rn\.(f32|f64)")
def _sqrt(body, s, kind):
  return _unary(body, s, kind, "std::sqrt({})")


@rule(r"rcp\.rn\.(f32|f64)")
def _rcp(body, s, kind):
  return _unary(body, s, kind, "1 / {}")


@rule(r"rsqrt\.approx\.(f64)")
def _rsqrt(body, s, kind):  # the machine's result may differ in the last place or two
  return _unary(body, s, kind, "1 / std::sqrt({})")


@rule(r"not\.(b16|b32|b64)")
def _complement(body, s, kind):
  return _unary(body, s, kind, "~{}")


@rule(r"not\.pred")
def _not(body, s):
  return _unary(body, s, "pred", "!{}")


@rule(r"(shl)\.(b16|b32|b64)")
@rule(r"(shr)\.([bus](?:16|32|64))")
def _shift(body, s, name, kind):
  a, count = body.read(s.operands[1], kind), s.operands[2]
  if count.isdecimal() and int(count) < int(kind[1:]):
    return body.write(s.operands[0], kind, f"{a} {'<<' if name == 'shl' else '>>'} {count}")
  return body.write(
      s.operands[0], kind, f"{name.capitalize()}({a}, {body.read(count, 'u32')})")


@rule(r"bfi\.(b32|b64)")
def _insert_bits(body, s, kind):
  a, b = (body.read(x, kind) for x in s.operands[1:3])
  c, d = (body.read(x, "u32") for x in s.operands[3:])
  return body.write(s.operands[0], kind, f"Bfi({a}, {b}, {c}, {d})")


@rule(r"prmt\.b32")
def _permute(body, s):
  a, b, c = (body.read(x, "b32") for x in s.operands[1:])
  return body.write(s.operands[0], "b32", f"Prmt({a}, {b}, {c})")


COMPARISONS = {
    "eq": "{a} == {b}", "ne": "{a} != {b}", "lt": "{a} < {b}", "le": "{a} <= {b}",
    "gt": "{a} > {b}", "ge": "{a} >= {b}"}
# Floating-point comparisons are false for NaN, and those that end in u are true.
FLOAT_COMPARISONS = COMPARISONS | {
    "ne": "{a} < {b} || {a} > {b}", "equ": "!({a} < {b} || {a} > {b})", "neu": "{a} != {b}",
    "ltu": "!({a} >= {b})", "leu": "!({a} > {b})", "gtu": "!({a} <= {b})", "geu": "!({a} < {b})",
    "num": "!std::isunordered({a}, {b})", "nan": "std::isunordered({a}, {b})"}


def _compare(body, s, kind, expression):
  a, b = (body.read(x, kind) for x in s.operands[1:])
  return body.write(s.operands[0], "pred", expression.format(a=a, b=b))


@rule(r"setp\.(eq|ne|lt|le|gt|ge)\.([bsu](?:16|32|64))")
def _compare_integers(body, s, relation, kind):
  return _compare(body, s, kind, COMPARISONS[relation])


@rule(r"setp\.(\w+)\.(f32|f64)")
def _compare_floats(body, s, relation, kind):
  return _compare(body, s, kind, FLOAT_COMPARISONS[relation])


@rule(r"selp\.([bsuf](?:16|32|64))")
def _select(body, s, kind):
  a, b = (body.read(x, kind) for x in s.operands[1:3])
  return body.write(s.operands[0], kind, f"{body.read(s.operands[3], 'pred')} ? {a} : {b}")


@rule(r"mov\.(pred|[bsuf](?:16|32|64))")
def _move(body, s, kind):
  target, source = s.operands
  half = {"b32": "b16", "b64": "b32"}.get(kind)
  if source.startswith("{"):
    low, high = (body.read(x, half) for x in parse.split_operands(source.strip("{} ")))
    return body.write(target, kind, f"Join({low}, {high})")
  if target.startswith("{"):
    low, high = parse.split_operands(target.strip("{} "))
    source = body.read(source, kind)
    # Both use the source before the assignment, because it may be one of the targets.
    return (f"{{ const auto x = {source};"
            f" {body.write(low, half, f'static_cast<{TYPES[half]}>(x)')}"
            f" {body.write(high, half, f'static_cast<{TYPES[half]}>(x >> {half[1:]})')} }}")
  return body.write(target, kind, body.read(source, kind))


@rule(r"cvta\.to\.global\.u64")
def _to_global(body, s):
  return body.write(s.operands[0], "u64", body.read(s.operands[1], "u64"))


@rule(r"cvta\.shared\.u64")
def _to_generic(body, s):
  return body.write(s.operands[0], "u64", f"kSharedWindow + {body.read(s.operands[1], 'u64')}")


@rule(r"cvt\.([su](?:8|16|32|64))\.([su](?:8|16|32|64))")
@rule(r"cvt\.rn\.(f32|f64)\.([su](?:32|64))")
@rule(r"cvt\.rn\.(f32)\.(f64)")
@rule(r"cvt\.(f64)\.(f32)")
def _convert(body, s, to, of):
  return body.write(s.operands[0], to, body.read(s.operands[1], of))


@rule(r"cvt\.rzi\.(s32|s64)\.(f32|f64)")
def _truncate(body, s, to, of):
  return body.write(s.operands[0], to, f"Truncate<{TYPES[to]}>({body.read(s.operands[1], of)})")


_KINDS = r"([bsuf](?:8|16|32|64))"


def _load(body, registers, count, kind, value):
  """`value` has the type that is loaded."""
  if count is None:
    return body.write(registers, kind, value.format(TYPES[kind]))
  value = value.format(f"std::array<{TYPES[kind]}, {count}>")
  targets = enumerate(parse.split_operands(registers.strip("{} ")))
  parts = " ".join(body.write(x, kind, f"x[{i}]") for i, x in targets)
  return f"{{ const auto x = {value}; {parts} }}"


@rule(r"ld\.param(?:\.v([24]))?\." + _KINDS)
def _load_parameter(body, s, count, kind):
  address = body.address(s.operands[1], "u64")
  return _load(body, s.operands[0], count, kind, f"t.LoadParameter<{{}}>({address})")


_SPACES = {"global": ("Global", "u64"), "shared": ("Shared", "u32"), None: ("Generic", "u64")}


@rule(r"ld(?:\.(global|shared))?(?:\.v([24]))?\." + _KINDS)
def _load_memory(body, s, space, count, kind):
  where, address = _SPACES[space]
  address = body.address(s.operands[1], address)
  return _load(body, s.operands[0], count, kind, f"t.Load{where}<{{}}>({address}, {s.line})")


@rule(r"st(?:\.(global|shared))?(?:\.v([24]))?\." + _KINDS)
def _store(body, s, space, count, kind):
  where, address = _SPACES[space]
  address, source = body.address(s.operands[0], address), s.operands[1]
  if count is None:
    value = body.read(source, kind)
  else:
    parts = (body.read(x, kind) for x in parse.split_operands(source.strip("{} ")))
    value = f"std::array<{TYPES[kind]}, {count}>{{{', '.join(parts)}}}"
  return f"t.Store{where}({address}, {value}, {s.line});"


@rule(r"cp\.async\.ca\.shared\.global")
def _copy(body, s):
  to, source = body.address(s.operands[0], "u32"), body.address(s.operands[1], "u64")
  return f"t.Copy({to}, {source}, {s.operands[2]}, {s.line});"


@rule(r"cp\.async\.wait_all")
def _finish_copies(_, s):
  return f"t.FinishCopies({s.line});"


@rule(r"bar\.sync")
def _barrier(body, s):
  return f"t.Barrier({body.read(s.operands[0], 'u32')}, {s.line});"


@rule(r"bar\.red\.or\.pred")
def _barrier_or(body, s):
  number, value = body.read(s.operands[1], "u32"), body.read(s.operands[2], "pred")
  return body.write(s.operands[0], "pred", f"t.BarrierOr({number}, {value}, {s.line})")


@rule(r"bar\.warp\.sync")
def _warp_barrier(body, s):
  return f"t.WarpBarrier({body.read(s.operands[0], 'u32')}, {s.line});"


@rule(r"shfl\.sync\.(bfly|idx)\.b32")
def _shuffle(body, s, mode):
  target, _, found = s.operands[0].partition("|")
  x, lane, shape, mask = (body.read(x, "b32") for x in s.operands[1:])
  text = body.write(target, "b32", "x.value")
  if found:
    text += " " + body.write(found, "pred", "x.found")
  arguments = f"ShuffleMode::k{mode.capitalize()}, {mask}, {x}, {lane}, {shape}, {s.line}"
  return f"{{ const auto x = t.Shuffle({arguments}); {text} }}"


@rule(r"vote\.sync\.(any)\.pred")
@rule(r"vote\.sync\.(ballot)\.b32")
def _vote(body, s, how):
  kind = "b32" if how == "ballot" else "pred"
  value, mask = body.read(s.operands[1], "pred"), body.read(s.operands[2], "b32")
  return body.write(
      s.operands[0], kind, f"t.Agree(Meeting::k{how.capitalize()}, {mask}, {value}, {s.line})")


@rule(r"redux\.sync\.(min|max)\.(s32|u32)")
def _reduce(body, s, how, kind):
  value, mask = body.read(s.operands[1], kind), body.read(s.operands[2], "b32")
  meeting = f"Meeting::k{how.capitalize()}{'Signed' if kind == 's32' else 'Unsigned'}"
  return body.write(s.operands[0], kind, f"t.Agree({meeting}, {mask}, {value}, {s.line})")


@rule(r"bra(?:\.uni)?")
def _branch(body, s):
  return f"goto {label(s.operands[0])};"


@rule(r"ret")
def _return(body, s):
  return "return;"
