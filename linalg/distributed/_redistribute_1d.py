"""One dimension of a matrix, dealt from chunks to groups of devices: which index goes where."""

from typing import NamedTuple

import jax.numpy as jnp

from linalg.distributed._slices import quotient, remainder


class Dealt(NamedTuple):
  """One dimension of a matrix, of which each of some devices has a chunk, dealt to groups: `unit`
  indices to one, as many to the next, and around.

  All chunks have as many slots for each group, so that one exchange takes them: what a device has
  for a group may be a unit less than another has. `device` and `group` are numbers, or arrays of
  them.
  """

  chunk: int
  devices: int
  unit: int
  groups: int
  length: int  # of a group's indices

  @property
  def cycle(self) -> int:
    return self.unit * self.groups

  @property
  def slots(self) -> int:
    return self.chunk // self.cycle * self.unit + min(self.chunk % self.cycle, self.unit)

  @property
  def growth(self) -> float:
    """Of what is exchanged, by slots that are not filled."""
    return self.slots * self.groups / self.chunk

  @property
  def is_even(self) -> bool:
    """Whether all slots are filled, and all that a group has comes in order."""
    return self.chunk % self.cycle == 0 and self.chunk * self.devices == self.length * self.groups

  def _before(self, device, group):
    """How many of a group's indices are in the chunks before a device's."""
    index = device * self.chunk
    cycle, place = quotient(index, self.cycle), remainder(index, self.cycle)
    return cycle * self.unit + jnp.clip(place - group * self.unit, 0, self.unit)

  def _index(self, group, number):
    """The index of a group's entry of some number."""
    cycle, place = quotient(number, self.unit), remainder(number, self.unit)
    return cycle * self.cycle + group * self.unit + place

  def _of_slots(self, device, group):
    """Numbers in each group of what stands in the slots for it: (devices or groups) x slots."""
    first = jnp.asarray(self._before(device, group))
    return first[:, None] + jnp.arange(self.slots, dtype=first.dtype)[None]

  def outgoing(self, device):
    """What a device sends: its indices, groups x slots. A slot that is not filled has another's."""
    group = jnp.arange(self.groups, dtype=device.dtype)
    index = self._index(group[:, None], self._of_slots(device, group)) - device * self.chunk
    return jnp.clip(index, 0, self.chunk - 1)

  def returned(self, device):
    """Where what a device is to have again stands in what it sent."""
    index = device * self.chunk + jnp.arange(self.chunk, dtype=device.dtype)
    group = remainder(quotient(index, self.unit), self.groups)
    number = quotient(index, self.cycle) * self.unit + remainder(index, self.unit)
    return group * self.slots + number - self._before(device, group)

  def incoming(self, group):
    """Where what a group is to have stands in what its members receive; of an index beyond the last
    chunk, anywhere."""
    number = jnp.arange(self.length, dtype=group.dtype)
    device = jnp.minimum(quotient(self._index(group, number), self.chunk), self.devices - 1)
    slot = number - self._before(device, group)
    return device * self.slots + jnp.clip(slot, 0, self.slots - 1)

  def returning(self, group):
    """What a group sends back: numbers of what it has, devices x slots."""
    device = jnp.arange(self.devices, dtype=group.dtype)
    return jnp.clip(self._of_slots(device, group), 0, self.length - 1)
