"""Operands of Kalman filters and smoothers: batches, one model for all, sharding, wrong shapes."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export
from jax.sharding import PartitionSpec as P

import linalg
import linalg.structured
import sharded
from state_space import FUNCTIONS, model

ONE_IN = 3


@pytest.mark.parametrize(("n", "m", "dtype"), [
    (4, 2, np.float64), (7, 3, np.float32),
    *[pytest.param(n, m, dtype, marks=pytest.mark.extended) for n, m, dtype in [
        (1, 2, np.float32), (2, 1, np.float64), (4, 2, np.float32), (14, 9, np.float64)]]])
@pytest.mark.cpu  # a GPU differentiates the smoother by the formula
def test_bits_do_not_depend_on_the_batch(n, m, dtype, rng):
  """Nor on whether parameters are shared, in values and derivatives."""
  y, parameters = model(rng, 5, n, m, dtype)
  y = rng.standard_normal((19, 5, m)).astype(dtype)
  mask = rng.random(y.shape) < 0.3

  @jax.jit
  def run(y, parameters, mask):
    def results(y, parameters):
      found = linalg.structured.kalman_smoother(y, **parameters, mask=mask)
      return found[:3], found.info

    values, pullback, _ = jax.vjp(results, y, parameters, has_aux=True)
    tangents = jax.jvp(results, (y, parameters), (y, parameters))[1][0]
    return values, tangents, pullback(jax.tree.map(jnp.ones_like, values))

  batched = {key: np.broadcast_to(x, (19, *x.shape)) for key, x in parameters.items()}
  together = run(y, batched, mask)
  shared = run(y, parameters, mask)
  for x, known in zip(jax.tree.leaves(shared[:2]), jax.tree.leaves(together[:2]), strict=True):
    np.testing.assert_array_equal(x, known)
  for size in (1, 4, 9):
    few = run(y[-size:], {key: x[-size:] for key, x in batched.items()}, mask[-size:])
    for x, known in zip(jax.tree.leaves(few), jax.tree.leaves(together), strict=True):
      np.testing.assert_array_equal(x, known[-size:])


@pytest.mark.parametrize(("n", "m", "dtype", "per_step", "per_series"), [
    (3, 2, np.float64, False, ()),
    pytest.param(4, 2, np.float32, False, (), marks=pytest.mark.extended),
    pytest.param(14, 5, np.float64, True, (), marks=pytest.mark.extended),
    pytest.param(3, 2, np.float64, True, ("initial_mean", "transition_offset"),
                 marks=pytest.mark.extended)])
@pytest.mark.cpu  # a GPU filters each series
def test_one_model_for_all_series(n, m, dtype, per_step, per_series, rng):
  """Covariances computed once: the bits of each series alone, and its derivatives."""
  names = ["transition", "observation_covariance", "observation_offset"] if per_step else []
  _, parameters = model(rng, 9, n, m, dtype, per_step=names)
  y = rng.standard_normal((19, 9, m)).astype(dtype)
  lead = {name: (1,) * (name in names) for name in parameters}
  one = {name: x.reshape(*lead[name], *x.shape) for name, x in parameters.items()}
  own = {name: np.broadcast_to(x, (19, *x.shape)) for name, x in parameters.items()}
  for name in per_series:
    own[name] = one[name] = own[name] + rng.standard_normal(own[name].shape).astype(dtype)
  axes = {name: 0 if name in per_series else None for name in parameters}
  spoilt = y.copy()
  spoilt[3, 4] = np.nan
  run = jax.jit(lambda y, x: linalg.structured.kalman_filter(y, **x))
  expected = run(spoilt, own)
  assert np.flatnonzero(expected.info).tolist() == [3]
  mapped = jax.jit(jax.vmap(run, in_axes=(0, axes)))(
      spoilt, parameters | {name: own[name] for name in per_series})
  few = run(spoilt[2:5], one | {name: own[name][2:5] for name in per_series})
  for operands in ((spoilt, one), (spoilt, own)):
    calls = run.lower(*operands).as_text().count("linalg_kalman_means")
    assert calls == (operands[1] is one)
  for x, by_vmap, of_few, known in zip(run(spoilt, one), mapped, few, expected, strict=True):
    np.testing.assert_array_equal(x, known)
    np.testing.assert_array_equal(by_vmap, known)
    np.testing.assert_array_equal(of_few, known[2:5])

  weights = [rng.standard_normal(x.shape).astype(dtype) for x in expected[:3]]
  direction = [rng.standard_normal(x.shape).astype(dtype) for x in (y, *one.values())]

  @functools.partial(jax.jit, static_argnums=0)
  def derivatives(repeated, y, x, direction):
    """The gradient, its change along a direction, and the gradient along it."""

    def loss(y, *x):
      x = [jnp.broadcast_to(a, b.shape) for a, b in zip(x, own.values(), strict=True)] if (
          repeated) else x
      found = run(y, dict(zip(one, x, strict=True)))
      return sum(jnp.sum(w * x**2) for w, x in zip(weights, found, strict=False))

    gradient = jax.grad(loss, tuple(range(1 + len(one))))
    return *jax.jvp(gradient, (y, *x), tuple(direction)), jax.jvp(loss, (y, *x), tuple(direction))

  given = y, tuple(one.values()), direction
  tolerance = 2e-3 if dtype == np.float32 else 1e-9
  for x, known in zip(*(jax.tree.leaves(derivatives(repeated, *given))
                        for repeated in (False, True)), strict=True):
    np.testing.assert_allclose(x, known, rtol=tolerance, atol=tolerance * np.max(np.abs(known)))


def test_masks_of_a_batch(rng):
  """A mask may serve all series, and one that could be read in two ways is refused."""
  y, parameters = model(rng, 6, 3, 2)
  y = rng.standard_normal((6, 6, 2))  # as many series as steps
  run = functools.partial(linalg.structured.kalman_filter, **parameters)
  steps, components = rng.random(6) < 0.4, rng.random((6, 2)) < 0.4
  for mask, whole in ((steps, np.repeat(steps[:, None], 2, axis=1)), (components, components)):
    expected = run(y, mask=np.broadcast_to(whole, y.shape))
    spoilt = np.where(whole, np.nan, y)
    for given in (mask, whole[None]):
      for x, known in zip(run(spoilt, mask=given), expected, strict=True):
        np.testing.assert_array_equal(x, known)
  for n in (1, 2):  # a batch of series of 2 steps with 2 components
    with pytest.raises(ValueError, match=r"\(2, 2\), .* either as \(..., T, m\), .* \(..., T\), "):
      run(y[:n, :2], mask=np.zeros((2, 2), bool))
  of_steps = rng.random((6, 6)) < 0.4
  for x, known in zip(run(y, mask=of_steps), run(
      y, mask=np.repeat(of_steps[..., None], 2, axis=2)), strict=True):
    np.testing.assert_array_equal(x, known)
  with pytest.raises(ValueError, match=r"mask of shape \(..., 6\) or .* got \(4, 6\)"):
    run(y, mask=of_steps[:4])


def test_vmap(rng):
  """Any operand may be mapped, and the others serve all."""
  y, parameters = model(rng, 4, 3, 2)
  for name in [None, *parameters]:
    given = {"y": y, **parameters}
    key = name or "y"
    given[key] = np.stack([given[key], given[key] + 0.1 * np.eye(*given[key].shape[-2:])
                           if given[key].ndim > 1 else given[key] + 0.1])
    axes = {other: 0 if other == key else None for other in given}
    run = jax.vmap(lambda x: FUNCTIONS["smoother"](x.pop("y"), **x), in_axes=(axes,))
    mapped = run(dict(given))
    for i in range(2):
      one = {other: x[i] if other == key else x for other, x in given.items()}
      for x, known in zip(mapped, FUNCTIONS["smoother"](one.pop("y"), **one), strict=True):
        np.testing.assert_array_equal(x[i], known)


def test_unit_batch_dimensions(rng):
  """Results have the common batch of all operands, where those of the observations are all 1."""
  y, parameters = model(rng, 4, 3, 2)
  means = rng.standard_normal((3, 3))
  for function in FUNCTIONS.values():
    expected = function(y[None], **parameters | {"initial_mean": means})
    for lead in ((1, 1), (1, 3)):
      observations = np.broadcast_to(y, (*lead, *y.shape))
      found = function(observations, **parameters | {"initial_mean": means})
      for x, known in zip(found, expected, strict=True):
        np.testing.assert_array_equal(x, known[None])
    alone = function(y[None, None], **parameters)
    assert alone.log_likelihood.shape == (1, 1) and alone[0].shape == (1, 1, 4, 3)


def test_steps_or_series(rng):
  """An operand that could be one for each step or one for each series is refused."""
  y, parameters = model(rng, 4, 3, 2)
  y = rng.standard_normal((4, 4, 2))  # as many series as steps
  run = functools.partial(linalg.structured.kalman_filter, y, **parameters)
  for name in ("transition", "observation_covariance", "observation_offset"):
    many = parameters[name] * rng.uniform(1, 2, (4, *[1] * parameters[name].ndim))
    own = ", ".join(map(str, parameters[name].shape))
    with pytest.raises(ValueError, match=(
        rf"takes {name} of shape \(4, {own}\), .* \(1, 4, {own}\) .* \(4, 1, {own}\) for")):
      run(**{name: many})
    for i in range(4):
      one = functools.partial(linalg.structured.kalman_filter, y[i], **parameters)
      for given, alone in ((many[None], many), (many[:, None], many[i])):
        for x, known in zip(run(**{name: given}), one(**{name: alone}), strict=True):
          np.testing.assert_array_equal(x[i], known)
    with pytest.raises(ValueError, match=rf"takes {name} of shape .* \(1, 4, {own}\) where"):
      linalg.structured.kalman_filter(y[:3], **parameters | {name: many})


@sharded.KINDS
def test_sharded_batch(kind, rng):
  """A sharded batch is filtered and differentiated where it is."""
  y, parameters = model(rng, 4, 3, 2, np.float32, batch=(sharded.BATCH,))
  parameters["transition"] = parameters["transition"][0]  # serves all
  mask = rng.random(y.shape) < 0.2
  mesh = sharded.make_mesh(kind=kind)

  def place(x):
    spec = P("x") if x.shape[:1] == (sharded.BATCH,) else P()
    return jax.device_put(x, jax.sharding.NamedSharding(mesh, spec))

  given = jax.tree.map(place, (y, parameters, mask))
  with jax.set_mesh(mesh):
    compiled = jax.jit(lambda *x: FUNCTIONS["smoother"](x[0], **x[1], mask=x[2])).lower(
        *given).compile()
    assert not sharded.collectives(compiled.as_text())
    found = compiled(*given)
    rest = {key: x for key, x in parameters.items() if key != "transition"}
    gradient = jax.grad(lambda y, rest, transition, mask: FUNCTIONS["smoother"](
        y, **rest, transition=transition, mask=mask)[0].sum(), (0, 1))
    placed = (
        given[0], {key: given[1][key] for key in rest}, given[1]["transition"], given[2])
    compiled = jax.jit(gradient).lower(*placed).compile()
    assert not sharded.collectives(compiled.as_text())
    gradients = compiled(*placed)
  assert found.smoothed_means.sharding.spec[0] == "x"
  for x, known in zip(found, FUNCTIONS["smoother"](y, **parameters, mask=mask), strict=True):
    np.testing.assert_array_equal(x, known)
  expected = gradient(y, rest, parameters["transition"], mask)
  for x, known in zip(jax.tree.leaves(gradients), jax.tree.leaves(expected), strict=True):
    np.testing.assert_allclose(x, known, rtol=1e-5, atol=1e-5)


@sharded.KINDS
def test_sharded_batch_of_one_model(kind, rng):
  """Means are computed where the series are, covariances on every device."""
  y, parameters = model(rng, 4, 3, 2, np.float32)
  y = rng.standard_normal((sharded.BATCH, *y.shape)).astype(np.float32)
  run = lambda y: linalg.structured.kalman_filter(y, **parameters)
  loss = lambda y: sum(jnp.sum(x) for x in run(y)[:3])
  expected = run(y), jax.grad(loss)(y)
  mesh = sharded.make_mesh(kind=kind)
  placed = jax.device_put(y, jax.sharding.NamedSharding(mesh, P("x")))
  with jax.set_mesh(mesh):
    compiled = jax.jit(lambda y: (run(y), jax.grad(loss)(y))).lower(placed).compile()
    assert not sharded.collectives(compiled.as_text())
    assert "linalg_kalman_means" in compiled.as_text()
    found = compiled(placed)
  for x, known in zip(found[0], expected[0], strict=True):
    assert x.sharding.spec[0] == "x"
    np.testing.assert_array_equal(x, known)
  np.testing.assert_allclose(found[1], expected[1], rtol=1e-5, atol=1e-5)


def test_shard_map_and_export(rng):
  y, parameters = model(rng, 4, 3, 2, np.float32)
  y = rng.standard_normal((16, 4, 2)).astype(np.float32)
  run = lambda y: linalg.structured.kalman_filter(y, **parameters)
  expected = run(y)
  mesh = sharded.make_mesh()
  mapped = jax.jit(jax.shard_map(run, mesh=mesh, in_specs=P("x"), out_specs=P("x")))(y)
  (size,) = export.symbolic_shape("b")
  exported = export.export(
      jax.jit(run), disabled_checks=linalg.export_disabled_checks())(
          jax.ShapeDtypeStruct((size, 4, 2), np.float32))
  for found in (mapped, exported.call(y)):
    for x, known in zip(found, expected, strict=True):
      np.testing.assert_array_equal(x, known)


@pytest.mark.parametrize(("name", "shape", "message"), [
    ("transition", (3, 4), r"transition of shape \(4, 4\), or \(6, 4, 4\) .* got \(3, 4\)"),
    ("transition", (5, 4, 4), r"transition .* got \(5, 4, 4\)"),
    ("transition_covariance", (3, 3), r"transition_covariance of shape \(4, 4\)"),
    ("observation", (4, 2), r"observation of shape \(2, 4\)"),
    ("observation_covariance", (2,), r"observation_covariance of shape \(2, 2\)"),
    ("initial_mean", (3,), r"initial_mean of shape \(4,\), beside"),
    ("initial_covariance", (4, 3), r"initial_covariance of shape \(4, 4\)"),
    ("observation_offset", (4,), r"observation_offset of shape \(2,\), or \(6, 2\)"),
    ("mask", (5,), r"mask of shape \(..., 6\) or \(..., 6, 2\)"),
])
def test_wrong_shapes(name, shape, message, rng):
  y, parameters = model(rng, 6, 4, 2)
  parameters[name] = np.zeros(shape, bool if name == "mask" else float)
  for key, function in FUNCTIONS.items():
    with pytest.raises(ValueError, match=rf"^kalman_{key}\(\) takes {message}"):
      function(y, **parameters)


def test_wrong_types(rng):
  y, parameters = model(rng, 6, 4, 2)
  run = functools.partial(linalg.structured.kalman_filter, **parameters)
  with pytest.raises(TypeError, match="real arrays, got complex128"):
    run(y.astype(complex), **{key: x.astype(complex) for key, x in parameters.items()})
  with pytest.raises(TypeError, match="mask as an array of booleans"):
    run(y, mask=np.zeros(6))
  with pytest.raises(ValueError, match=r"observations of shape \(..., T, m\)"):
    run(y[:0])
  with pytest.raises(ValueError, match="initial_mean with batch dimensions that broadcast"):
    run(np.stack([y, y]), initial_mean=np.zeros((3, 4)))
