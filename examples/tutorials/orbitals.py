# %% [markdown]
# # Hückel orbitals, where they are degenerate
#
# In Hückel's model of a flat molecule each carbon atom gives one electron, and orbitals are the
# eigenvectors of a small matrix H: an energy on the diagonal for each atom, and minus the strength
# of each bond beside it. Rings have equal eigenvalues, by symmetry. A chemist asks how charges
# answer to a field, and which shape the molecule takes. Both answers are derivatives at these
# matrices. Through `jnp.linalg.eigh` they are NaN, or wrong, or right by luck.

# %%
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import linalg

jax.config.update("jax_enable_x64", True)


def ring(atoms, bonds):
  """H of a ring, of the energy of each atom and the strength of each bond to the next one."""
  beside = jnp.roll(jnp.diag(bonds), 1, axis=-1)
  return jnp.diag(atoms) - beside - beside.T


w = linalg.eigvalsh(ring(jnp.zeros(6), jnp.ones(6)))
print("benzene:        ", w.round(4) + 0.0)
print("cyclobutadiene: ", linalg.eigvalsh(ring(jnp.zeros(4), jnp.ones(4))).round(4) + 0.0)
np.testing.assert_allclose(w, [-2, -1, -1, 1, 1, 2], atol=1e-12)

# %% [markdown]
# ## Benzene: how charges answer
#
# Two electrons are in each of the three lowest orbitals, of which the second and the third have one
# energy. How these two are chosen is arbitrary; the density matrix P = 2 V Vᵀ of all three is not.
# Its diagonal are the charges of the atoms. Their derivatives by the energies of atoms are known as
# fractions since Coulson and Longuet-Higgins (1947): 43/108 at the atom itself, then 17, 1, 11, 1,
# 17.

# %%
def charges(eigh, atoms, bonds):
  _, v = eigh(ring(atoms, bonds))
  occupied = v[:, : len(atoms) // 2]
  return 2 * jnp.sum(occupied**2, axis=1)


def response(eigh, bonds):
  """The derivative of each charge by the energy of each atom."""
  atoms = jnp.zeros_like(bonds)
  return np.asarray(jax.jit(jax.jacobian(lambda atoms: charges(eigh, atoms, bonds)))(atoms))


benzene = jnp.ones(6)
answer = response(linalg.eigh, benzene)
print("times 108:", (108 * answer[0]).round(6))
np.testing.assert_allclose(108 * answer[0], [-43, 17, -1, 11, -1, 17], atol=1e-9)

# %% [markdown]
# Stock JAX divides by the difference of the two energies. Where rounding leaves one, the quotients
# are large and may cancel; where it leaves none, they are NaN. Two molecules of ethylene that are
# far from each other, a ring of four with every second bond cut, have energies that are equal to
# the last bit.

# %%
ethylene = jnp.array([1.0, 0.0, 1.0, 0.0])
for name, bonds in (
    ("benzene, float64", benzene), ("benzene, float32", benzene.astype(jnp.float32)),
    ("two ethylenes, float64", ethylene)):
  both = [response(eigh, bonds)[0].round(4) + 0.0 for eigh in (linalg.eigh, jnp.linalg.eigh)]
  print(f"{name}\n  linalg:    {both[0]}\n  jax.numpy: {both[1]}")
np.testing.assert_allclose(response(linalg.eigh, ethylene)[0], [-0.5, 0.5, 0, 0], atol=1e-12)

# %%
figure, axis = plt.subplots(figsize=(5.4, 3))
axis.bar(range(6), answer[0], color=["C0" if x > 0 else "C1" for x in answer[0]])
axis.axhline(0, color="gray", linewidth=1)
axis.set_xticks(range(6), ["itself", "ortho", "meta", "para", "meta", "ortho"])
axis.set(title="Benzene: change of charges by the energy of one atom",
         xlabel="atom, around the ring", ylabel="d charge / d energy, in 1/|β|")
plt.show()

# %% [markdown]
# ## Cyclobutadiene: electrons that cannot choose
#
# The square has two electrons for two orbitals of energy 0. Which they take is no function of the
# matrix. At a temperature T it is one: each orbital holds 2 / (1 + exp(e / kT)) electrons, and the
# density matrix is that function of H. `funm_hermitian` has its derivatives, exact at any spectrum,
# the second too. The free energy of the electrons is the trace of another such function.

# %%
TEMPERATURE = 0.1  # kT in electronvolts
held = lambda e: 2 * jax.nn.sigmoid(-e / TEMPERATURE)
free = lambda e: -2 * TEMPERATURE * jax.nn.softplus(-e / TEMPERATURE)  # its derivative is `held`


def electrons(bonds):
  return jnp.trace(linalg.funm_hermitian(ring(jnp.zeros_like(bonds), bonds), free))


def electrons_stock(bonds):
  return jnp.sum(free(jnp.linalg.eigvalsh(ring(jnp.zeros_like(bonds), bonds))))


square = jnp.full(4, 2.5)
alternate = jnp.array([1.0, -1.0, 1.0, -1.0])
along = lambda hessian: alternate @ hessian @ alternate
ours = along(jax.jit(jax.hessian(electrons))(square))
stock = along(jax.jit(jax.hessian(electrons_stock))(square))
print(f"curvature of the square towards a rectangle: {ours:.6f}; through jax.numpy {stock:.6f}")

# %% [markdown]
# By hand: bonds 2.5 ± d have the energies ±5 and ±2d. The curvature is therefore 8 times the second
# derivative of `free` at 0, −1 / (2 kT): −40. The other number is what rounding makes of a quotient
# of two zeros. The gradient by a bond is minus twice the element of the density matrix, the bond
# order.

# %%
np.testing.assert_allclose(ours, -4 / TEMPERATURE, rtol=1e-9)
density = linalg.funm_hermitian(ring(jnp.zeros(4), square), held)
orders = jnp.diagonal(jnp.roll(density, -1, axis=1))
np.testing.assert_allclose(jax.grad(electrons)(square), -2 * orders, rtol=1e-9)
print(f"bond order of the square: {density[0, 1]:.6f}")

# %% [markdown]
# ## Which shape the molecules take
#
# Longer bonds are weaker: 2.5 eV − 4.1 eV/Å × (length − 1.40 Å), and the rest of the bond is a
# spring of 21 eV/Å² (Su, Schrieffer and Heeger, 1979), of such a length that benzene's bonds are of
# 1.40 Å. We go down the gradient from rings whose bonds differ by thousandths of an ångström.

# %%
STRENGTH, SLOPE, SPRING, LENGTH = 2.5, 4.1, 21.0, 1.40
REST = 2 * SLOPE * (2 / 3) / SPRING  # benzene's bond order is 2/3


def energy(lengths):
  stretch = lengths - LENGTH
  return electrons(STRENGTH - SLOPE * stretch) + SPRING / 2 * jnp.sum((stretch - REST) ** 2)


@jax.jit
def relax(lengths):
  return jax.lax.fori_loop(0, 400, lambda _, x: x - 0.02 * jax.grad(energy)(x), lengths)


found = {}
for name, atoms in (("benzene", 6), ("cyclobutadiene", 4)):
  start = LENGTH + 1e-3 * np.random.default_rng(0).normal(size=atoms)
  found[name] = np.asarray(relax(jnp.asarray(start)))
  steepness = np.abs(jax.jit(jax.grad(energy))(found[name])).max()
  print(f"{name}: {found[name].round(3)} Å, gradient {steepness:.0e}")
  assert steepness < 1e-6

np.testing.assert_allclose(found["benzene"], LENGTH, atol=1e-3)
short, long = np.sort(found["cyclobutadiene"])[[0, -1]]
np.testing.assert_allclose(*found["cyclobutadiene"].reshape(2, 2), atol=1e-6)
assert long - short > 0.1

# %% [markdown]
# Benzene stays regular and cyclobutadiene becomes a rectangle, as the real ones are; the model
# makes the difference of its bonds larger than it is. The gradient is finite all the way, at the
# regular start too.

# %%
energies = jax.jit(jax.vmap(energy))
d = np.linspace(-0.25, 0.25, 101)
figure, axis = plt.subplots(figsize=(5.4, 3.6))
for name, colour, dashes in (("benzene", "C0", "-"), ("cyclobutadiene", "C1", "--")):
  atoms = len(found[name])
  signs = (-1.0) ** np.arange(atoms)
  curve = np.asarray(energies(found[name].mean() + d[:, None] * signs))
  axis.plot(d, (curve - curve[50]) / atoms, dashes, color=colour, label=name)
  at = (found[name] * signs).mean()
  value = (energies(found[name][None])[0] - curve[50]) / atoms
  axis.plot(abs(at), value, "o", color=colour, label=f"where the descent ends: {abs(at):.2f} Å")
axis.set(title="Alternating bonds: benzene resists, cyclobutadiene gives way",
         xlabel="every second bond longer, the others shorter by, Å", ylabel="energy per atom, eV")
axis.legend(loc="upper center")
plt.show()
