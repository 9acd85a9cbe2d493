// In place of the header of the same name: a team whose threads run one after another.
#pragma once

#include "tests/cuda/serial_team.h"

namespace linalg::cuda {

inline constexpr int kMeetingBytes = 512;

class Team : public team::SerialTeam {
 public:
  explicit Team(int size) : SerialTeam(size, team::Order::kScrambled) {}
};

template <int kSize>
class WarpTeam : public team::SerialTeam {
 public:
  WarpTeam() : SerialTeam(kSize, team::Order::kScrambled) {}
};

}  // namespace linalg::cuda
