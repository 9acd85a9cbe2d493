"""The redistribution of one dimension of a matrix, from chunks to groups of devices."""

from typing import NamedTuple

import jax.numpy as jnp

from linalg.distributed._slices import quotient, remainder


class Redistribution(NamedTuple):
  """One dimension of a matrix, redistributed from chunks of devices to groups of devices.

  Each device has a chunk of the indices. The first group gets the first `unit` indices, the next
  group the next `unit`, and so on cyclically. All chunks have the same number of slots for each
  group, so that one exchange takes them. A device may have one unit less for a group than another
  has. `device` and `group` are numbers, or arrays of them.
  """

  chunk: int
  devices: int
  unit: int
  groups: int
  length: int  # the number of a group's indices

  @property
  def cycle(self) -> int:
    return self.unit * self.groups

  @property
  def slots(self) -> int:
    return self.chunk // self.cycle * self.unit + min(self.chunk % self.cycle, self.unit)

  @property
  def growth(self) -> float:
    """The growth of the exchanged data due to unfilled slots."""
    return self.slots * self.groups / self.chunk

  @property
  def is_even(self) -> bool:
    """Whether all slots are filled, and a group receives its indices in order."""
    return self.chunk % self.cycle == 0 and self.chunk * self.devices == self.length * self.groups

  def _before(self, device, group):
    """The number of a group's indices in the chunks before a device's."""
    index = device * self.chunk
    cycle, place = quotient(index, self.cycle), remainder(index, self.cycle)
    return cycle * self.unit + jnp.clip(place - group * self.unit, 0, self.unit)

  def _index(self, group, number):
    """The index of entry `number` of a group."""
    cycle, place = quotient(number, self.unit), remainder(number, self.unit)
    return cycle * self.cycle + group * self.unit + place

  def _of_slots(self, device, group):
    """The entries of each group in its slots: (devices or groups) x slots."""
    first = jnp.asarray(self._before(device, group))
    return first[:, None] + jnp.arange(self.slots, dtype=first.dtype)[None]

  def outgoing(self, device):
    """The positions in its chunk that a device sends, groups x slots. An unfilled slot repeats
    another."""
    group = jnp.arange(self.groups, dtype=device.dtype)
    index = self._index(group[:, None], self._of_slots(device, group)) - device * self.chunk
    return jnp.clip(index, 0, self.chunk - 1)

  def returned(self, device):
    """Returns for each index of a device's chunk its position among those that the device sent."""
    index = device * self.chunk + jnp.arange(self.chunk, dtype=device.dtype)
    group = remainder(quotient(index, self.unit), self.groups)
    number = quotient(index, self.cycle) * self.unit + remainder(index, self.unit)
    return group * self.slots + number - self._before(device, group)

  def incoming(self, group):
    """Returns for each entry of a group its position among those that the group's members receive.

    An index beyond the last chunk has an arbitrary position.
    """
    number = jnp.arange(self.length, dtype=group.dtype)
    device = jnp.minimum(quotient(self._index(group, number), self.chunk), self.devices - 1)
    slot = number - self._before(device, group)
    return device * self.slots + jnp.clip(slot, 0, self.slots - 1)

  def returning(self, group):
    """The entries that a group sends back, devices x slots."""
    device = jnp.arange(self.devices, dtype=group.dtype)
    return jnp.clip(self._of_slots(device, group), 0, self.length - 1)
