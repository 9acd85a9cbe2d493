// Tangents and adjoints of the steps of kalman.h, with the moments that the recursion has found.
//
// Let e = S⁻¹ v, g = Hᵀ e, and let m and P be the predicted moments, m⁺ and P⁺ the filtered ones.
// Since K is optimal, A P = P⁺ and m + P g = m⁺, and so
//
//   dm⁺ = A (dm + dP g) + K (dy - dd - dH m⁺ - dR e) + P⁺ dHᵀ e
//   dP⁺ = A dP Aᵀ + K dR Kᵀ - K dH P⁺ - P⁺ dHᵀ Kᵀ
//   dl = -eᵀ (dy - dd - dH m⁺) - ⟨Kᵀ, dH⟩ + gᵀ dm + ⟨e eᵀ - S⁻¹, dR + H dP Hᵀ⟩ / 2
//
// The smoother is differentiated in the form of Rauch, Tung and Striebel (1965): mₛ = m + G D and
// Pₛ = P + G (Pₛ' - P') Gᵀ with P' = F P Fᵀ + Q, G = P Fᵀ P'⁻¹ and D = mₛ' - F m - b. Where P' is
// singular, any G with G P' = P Fᵀ serves. Let B = I - G F, e' = P'⁻¹ D and V = P'⁻¹ Pₛ' Gᵀ. Then
//
//   dmₛ = B (dm + dP Fᵀ e' + P dFᵀ e') + G (dmₛ' - db - dF mₛ - dQ e')
//   dPₛ = C + Cᵀ, C = B (dP (Bᵀ / 2 + Fᵀ V) + P dFᵀ V) + G ((dPₛ' + dQ) Gᵀ / 2 - dF Pₛ - dQ V)
//
// The adjoints are the transposes of these formulas.
#pragma once

#include "kernels/small/kalman.h"

namespace linalg::small {

template <class B, class E>
struct FilterTangent {
  int n, m;
  int64_t row, short_row;
  E *df, *dq, *dh, *dr, *db, *dd, *dy;  // operands
  E *mean, *cov;                        // of the prediction, or the operands of step 0
  E *new_mean, *new_cov;                // after the observation

  FilterTangent(int n, int m, Workspace<B, E>& memory)
      : n(n),
        m(m),
        row(PaddedColumns<E, B>(n)),
        short_row(PaddedColumns<E, B>(m)),
        df(memory.Matrix(n, n)),
        dq(memory.Matrix(n, n)),
        dh(memory.Matrix(m, n)),
        dr(memory.Matrix(m, m)),
        db(memory.Vector(n)),
        dd(memory.Vector(m)),
        dy(memory.Vector(m)),
        mean(memory.Vector(n)),
        cov(memory.Matrix(n, n)),
        new_mean(memory.Vector(n)),
        new_cov(memory.Matrix(n, n)),
        t1_(memory.Matrix(n, n)),
        t2_(memory.Matrix(n, n)),
        a_turned_(memory.Matrix(n, n)),
        x_(memory.Matrix(m, n)),
        ds_(memory.Matrix(m, m)),
        w_(memory.Vector(m)),
        re_(memory.Vector(m)),
        g_(memory.Vector(n)),
        u_(memory.Vector(n)) {}

  static int64_t Size(int n, int m) {
    const int64_t row = PaddedColumns<E, B>(n), short_row = PaddedColumns<E, B>(m);
    return 7 * n * row + 2 * m * row + 2 * m * short_row + 5 * row + 4 * short_row;
  }

  // From the new moments of a step to the moments of the next one's prediction.
  LINALG_INLINE void Predict(const KalmanPrediction<B, E>& next, const E* before,
                             const E* cov_before) {
    Apply(n, n, next.Plain(df), before, u_);
    Apply(n, n, next.Plain(next.f), new_mean, mean);
    for (int i = 0; i < n; ++i) mean[i] = (mean[i] + u_[i]) + db[i];
    Product<B>(n, n, n, next.Plain(next.f), next.Plain(new_cov), Into::kSet, t1_, row);
    const E half = Number<E>(0.5);
    for (int64_t k = 0; k < n * row; ++k) t1_[k] = half * t1_[k];
    Product<B>(n, n, n, next.Plain(df), next.Plain(cov_before), Into::kAdd, t1_, row);
    Product<B>(n, n, n, next.Plain(t1_), next.ft(), Into::kSet, t2_, row);
    AddBothTriangles(n, row, t2_, dq, cov);
  }

  // Returns the tangent of the step's log likelihood.
  LINALG_INLINE E Update(const KalmanGain<B, E>& gain, const E* filtered, const E* filtered_cov,
                         bool masked) {
    if (masked) KeepSeen(gain);
    const E half = Number<E>(0.5);
    Apply(m, n, gain.Plain(dh), filtered, w_);
    Apply(m, m, gain.Short(dr), gain.e, re_);
    for (int i = 0; i < m; ++i) w_[i] = (dy[i] - dd[i]) - (w_[i] + re_[i]);
    Apply(n, m, gain.Turned(gain.h), gain.e, g_);
    Apply(n, n, gain.Plain(cov), g_, u_);
    E change = Dot(n, g_, mean) + half * Dot(n, g_, u_);
    change = change - Dot(m, gain.e, w_) - half * Dot(m, gain.e, re_);
    for (int i = 0; i < m; ++i) change = change - Dot(n, gain.kt + i * row, dh + i * row);

    Product<B>(m, n, n, gain.Plain(gain.h), gain.Plain(cov), Into::kSet, x_, row);
    std::copy(dr, dr + m * short_row, ds_);
    Product<B>(m, m, n, gain.Plain(x_), gain.ht, Into::kAdd, ds_, short_row);
    SolveLdl<B>(m, short_row, gain.s, gain.inverse, m, short_row, ds_);
    for (int i = 0; i < m; ++i) change = change - half * ds_[i * (short_row + 1)];

    for (int i = 0; i < n; ++i) u_[i] = mean[i] + u_[i];
    Apply(m, n, gain.Plain(gain.h), u_, re_);
    for (int i = 0; i < m; ++i) w_[i] = w_[i] - re_[i];
    std::copy(u_, u_ + n, new_mean);
    Product<B>(kOne, n, m, {w_, 0, 1}, gain.Plain(gain.kt), Into::kAdd, new_mean, row);
    Apply(n, m, gain.Turned(dh), gain.e, u_);
    Product<B>(kOne, n, n, {u_, 0, 1}, gain.Plain(filtered_cov), Into::kAdd, new_mean, row);

    gain.Propagate(cov, a_turned_, t1_, new_cov);
    Product<B>(m, n, m, gain.Short(dr), gain.Plain(gain.kt), Into::kSet, x_, row);
    for (int64_t k = 0; k < m * row; ++k) x_[k] = half * x_[k];
    Product<B>(m, n, n, gain.Plain(dh), gain.Plain(filtered_cov), Into::kSubtract, x_, row);
    Product<B>(n, n, m, gain.Turned(gain.kt), gain.Plain(x_), Into::kSet, t2_, row);
    AddBothTriangles(n, row, t2_, new_cov, new_cov);
    return change;
  }

 private:
  // The operands may be used for the next step too, where other components are missing. So they
  // must be taken anew.
  LINALG_INLINE void KeepSeen(const KalmanGain<B, E>& gain) {
    for (int i = 0; i < m; ++i) {
      const Mask<E> is_seen = gain.seen[i] != E{};
      dy[i] = KeepIf(is_seen, dy[i]);
      dd[i] = KeepIf(is_seen, dd[i]);
      for (int j = 0; j < n; ++j) dh[i * row + j] = KeepIf(is_seen, dh[i * row + j]);
      for (int j = 0; j < m; ++j) {
        dr[i * short_row + j] = is_seen & (gain.seen[j] != E{}) ? dr[i * short_row + j] : E{};
      }
    }
  }

  E *t1_, *t2_, *a_turned_, *x_, *ds_, *w_, *re_, *g_, *u_;
};

// Cotangents of a step's operands, from those of the filtered moments: `mean` and a symmetric
// `cov`, which become those of the predicted moments.
template <class B, class E, class N = int, class M = int>
struct FilterAdjoint {
  N n;
  M m;
  int64_t row, short_row;
  E *f, *q, *h, *r, *b, *d, *y;  // results; b is the predicted mean's, q its covariance's
  E *mean, *cov;

  FilterAdjoint(N n, M m, Workspace<B, E>& memory)
      : n(n),
        m(m),
        row(PaddedColumns<E, B>(n)),
        short_row(PaddedColumns<E, B>(m)),
        f(memory.Matrix(n, n)),
        q(memory.Matrix(n, n)),
        h(memory.Matrix(m, n)),
        r(memory.Matrix(m, m)),
        b(memory.Vector(n)),
        d(memory.Vector(m)),
        y(memory.Vector(m)),
        mean(memory.Vector(n)),
        cov(memory.Matrix(n, n)),
        t1_(memory.Matrix(n, n)),
        kl_(memory.Matrix(m, n)),
        x_(memory.Matrix(m, n)),
        klk_(memory.Matrix(m, m)),
        s_inverse_(memory.Matrix(m, m)),
        k_memory_(memory.Matrix(n, m)),
        kappa_(memory.Vector(m)),
        pi_(memory.Vector(n)),
        g_(memory.Vector(n)) {}

  static int64_t Size(int n, int m) {
    const int64_t row = PaddedColumns<E, B>(n), short_row = PaddedColumns<E, B>(m);
    return 4 * n * row + 3 * m * row + 3 * m * short_row + n * short_row + 4 * row + 3 * short_row;
  }

  // `c` is the cotangent of the log likelihood. Sets y, d, h, r, and the cotangents of the
  // predicted moments, b and q.
  LINALG_INLINE void Update(const KalmanGain<B, E, N, M>& gain, const E* filtered,
                            const E* filtered_cov, E c, bool masked) {
    const E half = Number<E>(0.5), two = Number<E>(2);
    const E* const e = gain.e;
    Apply(m, n, gain.Plain(gain.kt), mean, kappa_);
    Apply(n, n, gain.Plain(filtered_cov), mean, pi_);
    Apply(n, m, gain.Turned(gain.h), e, g_);
    for (int i = 0; i < m; ++i) {
      y[i] = NegMulAdd(c, e[i], kappa_[i]);
      d[i] = -y[i];
    }
    Product<B>(m, n, n, gain.Plain(gain.kt), gain.Plain(cov), Into::kSet, kl_, row);
    Product<B>(m, n, n, gain.Plain(kl_), gain.Plain(filtered_cov), Into::kSet, h, row);
    for (int i = 0; i < m; ++i) {
      for (int j = 0; j < n; ++j) {
        E& target = h[i * row + j];
        target = MulAdd(e[i], pi_[j], -(two * target));
        target = NegMulAdd(y[i], filtered[j], target);
        target = NegMulAdd(c, gain.kt[i * row + j], target);
      }
    }
    const Strided<E> k = TransposedRight<B>(m, n, gain.kt, row, k_memory_);
    Product<B>(m, m, n, gain.Plain(kl_), k, Into::kSet, klk_, short_row);
    SetIdentity(m, short_row, s_inverse_);
    SolveLdl<B>(m, short_row, gain.s, gain.inverse, m, short_row, s_inverse_);
    const E half_c = half * c;
    for (int i = 0; i < m; ++i) {
      for (int j = 0; j <= i; ++j) {
        const int64_t at = i * short_row + j, turned = j * short_row + i;
        const E inverse = half * (s_inverse_[at] + s_inverse_[turned]);
        const E inner = NegMulAdd(half_c, inverse, half * (klk_[at] + klk_[turned]));
        klk_[at] = klk_[turned] = inner;
        const E outer = MulAdd(kappa_[i], e[j], kappa_[j] * e[i]) - c * (e[i] * e[j]);
        r[at] = r[turned] = NegMulAdd(half, outer, inner);
        if (masked) {
          const Mask<E> is_seen = (gain.seen[i] != E{}) & (gain.seen[j] != E{});
          r[at] = r[turned] = KeepIf(is_seen, r[at]);
        }
      }
    }
    // The mean's A λ, in place: λ - Hᵀ κ.
    Apply(n, m, gain.Turned(gain.h), kappa_, b);
    for (int i = 0; i < n; ++i) mean[i] = mean[i] - b[i];
    // P̄ = Λ + Hᵀ X + Xᵀ H with X = -Kᵀ Λ + (Kᵀ Λ K - c S⁻¹ / 2) H / 2 + e (Aᵀ λ + c g / 2)ᵀ / 2
    Product<B>(m, n, m, gain.Short(klk_), gain.Plain(gain.h), Into::kSet, x_, row);
    for (int j = 0; j < n; ++j) {
      const E to = MulAdd(half_c, g_[j], mean[j]);
      for (int i = 0; i < m; ++i) {
        E& target = x_[i * row + j];
        target = MulAdd(half, MulAdd(e[i], to, target), -kl_[i * row + j]);
      }
      b[j] = MulAdd(c, g_[j], mean[j]);
    }
    Product<B>(n, n, m, gain.Turned(gain.h), gain.Plain(x_), Into::kSet, t1_, row);
    AddBothTriangles(n, row, t1_, cov, q);
  }

  // From b and q to f, and to the mean and cov of the step before, with its filtered moments.
  LINALG_INLINE void Predict(const KalmanPrediction<B, E, N>& next, const E* before) {
    const E two = Number<E>(2);
    Product<B>(n, n, n, next.Plain(q), next.Plain(next.fp), Into::kSet, f, row);
    for (int i = 0; i < n; ++i) {
      for (int j = 0; j < n; ++j) {
        f[i * row + j] = MulAdd(two, f[i * row + j], b[i] * before[j]);
      }
    }
    Apply(n, n, next.Turned(next.f), b, mean);
    Product<B>(n, n, n, next.Plain(q), next.Plain(next.f), Into::kSet, t1_, row);
    Product<B, true>(n, n, n, next.Turned(next.f), next.Plain(t1_), Into::kSet, cov, row);
    Mirror(n, row, cov);
  }

 private:
  E *t1_, *kl_, *x_, *klk_, *s_inverse_, *k_memory_, *kappa_, *pi_, *g_;
};

// Terms that both derivatives of the smoother need.
template <class B, class E>
struct SmootherTerms {
  int n;
  int64_t row;
  E *e, *fe, *v, *w;  // e', Fᵀ e', V, Bᵀ / 2 + Fᵀ V

  SmootherTerms(int n, Workspace<B, E>& memory)
      : n(n),
        row(PaddedColumns<E, B>(n)),
        e(memory.Vector(n)),
        fe(memory.Vector(n)),
        v(memory.Matrix(n, n)),
        w(memory.Matrix(n, n)) {}

  static int64_t Size(int n) {
    return 2 * int64_t{n} * PaddedColumns<E, B>(n) + 2 * PaddedColumns<E, B>(n);
  }

  LINALG_INLINE void Compute(const KalmanPrediction<B, E>& next, const SmootherGain<B, E>& gain,
                             const E* later_mean, const E* later_cov) {
    for (int i = 0; i < n; ++i) e[i] = later_mean[i] - next.mean[i];
    SolveLdl<E>(n, row, gain.s, gain.inverse, kOne, 1, e);
    Apply(n, n, next.Turned(next.f), e, fe);
    Product<B>(n, n, n, next.Plain(later_cov), next.Plain(gain.gt), Into::kSet, v, row);
    SolveLdl<B>(n, row, gain.s, gain.inverse, n, row, v);
    const E half = Number<E>(0.5);
    for (int64_t k = 0; k < n * row; ++k) w[k] = half * gain.b_turned[k];
    Product<B>(n, n, n, next.Turned(next.f), next.Plain(v), Into::kAdd, w, row);
  }
};

template <class B, class E>
struct SmootherTangent {
  int n;
  int64_t row;
  E *df, *dq, *db, *dmean, *dcov;  // operands
  E *later_mean, *later_cov;       // of the smoothed moments of the next step
  E *new_mean, *new_cov;

  SmootherTangent(int n, Workspace<B, E>& memory)
      : n(n),
        row(PaddedColumns<E, B>(n)),
        df(memory.Matrix(n, n)),
        dq(memory.Matrix(n, n)),
        db(memory.Vector(n)),
        dmean(memory.Vector(n)),
        dcov(memory.Matrix(n, n)),
        later_mean(memory.Vector(n)),
        later_cov(memory.Matrix(n, n)),
        new_mean(memory.Vector(n)),
        new_cov(memory.Matrix(n, n)),
        t1_(memory.Matrix(n, n)),
        t2_(memory.Matrix(n, n)),
        t3_(memory.Matrix(n, n)),
        x_(memory.Vector(n)),
        z_(memory.Vector(n)) {}

  static int64_t Size(int n) {
    return 8 * int64_t{n} * PaddedColumns<E, B>(n) + 6 * PaddedColumns<E, B>(n);
  }

  LINALG_INLINE void Update(const KalmanPrediction<B, E>& next, const SmootherGain<B, E>& gain,
                            const SmootherTerms<B, E>& terms, const E* cov, const E* smoothed_mean,
                            const E* smoothed_cov) {
    const E half = Number<E>(0.5);
    // x = dm + dP Fᵀ e' + P dFᵀ e', z = dmₛ' - db - dF mₛ - dQ e'
    Apply(n, n, next.Plain(dcov), terms.fe, x_);
    Apply(n, n, next.Turned(df), terms.e, new_mean);
    Apply(n, n, next.Plain(cov), new_mean, z_);
    for (int i = 0; i < n; ++i) x_[i] = dmean[i] + (x_[i] + z_[i]);
    Apply(n, n, next.Plain(df), smoothed_mean, z_);
    Apply(n, n, next.Plain(dq), terms.e, new_mean);
    for (int i = 0; i < n; ++i) z_[i] = (later_mean[i] - db[i]) - (z_[i] + new_mean[i]);
    std::fill(new_mean, new_mean + n, E{});
    Product<B>(kOne, n, n, {x_, 0, 1}, next.Plain(gain.b_turned), Into::kSet, new_mean, row);
    Product<B>(kOne, n, n, {z_, 0, 1}, next.Plain(gain.gt), Into::kAdd, new_mean, row);

    Product<B>(n, n, n, next.Turned(df), next.Plain(terms.v), Into::kSet, t1_, row);
    Product<B>(n, n, n, next.Plain(cov), next.Plain(t1_), Into::kSet, t2_, row);
    Product<B>(n, n, n, next.Plain(dcov), next.Plain(terms.w), Into::kAdd, t2_, row);
    Product<B>(n, n, n, next.Turned(gain.b_turned), next.Plain(t2_), Into::kSet, t3_, row);
    // (dPₛ' / 2) Gᵀ + dQ (Gᵀ / 2 - V) - dF Pₛ
    for (int64_t k = 0; k < n * row; ++k) t1_[k] = MulAdd(half, gain.gt[k], -terms.v[k]);
    Product<B>(n, n, n, next.Plain(later_cov), next.Plain(gain.gt), Into::kSet, t2_, row);
    for (int64_t k = 0; k < n * row; ++k) t2_[k] = half * t2_[k];
    Product<B>(n, n, n, next.Plain(dq), next.Plain(t1_), Into::kAdd, t2_, row);
    Product<B>(n, n, n, next.Plain(df), next.Plain(smoothed_cov), Into::kSubtract, t2_, row);
    Product<B>(n, n, n, next.Turned(gain.gt), next.Plain(t2_), Into::kAdd, t3_, row);
    for (int i = 0; i < n; ++i) {
      for (int j = 0; j <= i; ++j) {
        new_cov[i * row + j] = new_cov[j * row + i] = t3_[i * row + j] + t3_[j * row + i];
      }
    }
  }

 private:
  E *t1_, *t2_, *t3_, *x_, *z_;
};

// Cotangents of a step's operands, from those of its smoothed moments: `mean` and a symmetric
// `cov`, which become those of the next step's smoothed moments.
template <class B, class E>
struct SmootherAdjoint {
  int n;
  int64_t row;
  E *f, *q, *b, *filtered_mean, *filtered_cov;  // results
  E *mean, *cov;

  SmootherAdjoint(int n, Workspace<B, E>& memory)
      : n(n),
        row(PaddedColumns<E, B>(n)),
        f(memory.Matrix(n, n)),
        q(memory.Matrix(n, n)),
        b(memory.Vector(n)),
        filtered_mean(memory.Vector(n)),
        filtered_cov(memory.Matrix(n, n)),
        mean(memory.Vector(n)),
        cov(memory.Matrix(n, n)),
        bm_(memory.Matrix(n, n)),
        gm_(memory.Matrix(n, n)),
        t1_(memory.Matrix(n, n)),
        t2_(memory.Matrix(n, n)),
        turned_(memory.Matrix(n, n)),
        pi_(memory.Vector(n)) {}

  static int64_t Size(int n) {
    return 9 * int64_t{n} * PaddedColumns<E, B>(n) + 4 * PaddedColumns<E, B>(n);
  }

  LINALG_INLINE void Update(const KalmanPrediction<B, E>& next, const SmootherGain<B, E>& gain,
                            const SmootherTerms<B, E>& terms, const E* filtered_p,
                            const E* smoothed_mean, const E* smoothed_cov) {
    const E half = Number<E>(0.5), two = Number<E>(2);
    // β = Bᵀ μ, γ = Gᵀ μ
    Apply(n, n, next.Plain(gain.b_turned), mean, filtered_mean);
    Apply(n, n, next.Plain(filtered_p), filtered_mean, pi_);
    Apply(n, n, next.Plain(gain.gt), mean, b);
    for (int i = 0; i < n; ++i) {
      mean[i] = b[i];
      b[i] = -b[i];
    }
    Product<B>(n, n, n, next.Plain(gain.b_turned), next.Plain(cov), Into::kSet, bm_, row);
    Product<B>(n, n, n, next.Plain(gain.gt), next.Plain(cov), Into::kSet, gm_, row);
    // F̄ = e' (P β)ᵀ - γ mₛᵀ + 2 (V M B P - Gᵀ M Pₛ)
    Product<B>(n, n, n, next.Turned(bm_), next.Plain(filtered_p), Into::kSet, t1_, row);
    Product<B>(n, n, n, next.Plain(terms.v), next.Plain(t1_), Into::kSet, f, row);
    Product<B>(n, n, n, next.Plain(gm_), next.Plain(smoothed_cov), Into::kSubtract, f, row);
    for (int i = 0; i < n; ++i) {
      for (int j = 0; j < n; ++j) {
        E& target = f[i * row + j];
        target = MulAdd(two, target, terms.e[i] * pi_[j]);
        target = MulAdd(b[i], smoothed_mean[j], target);
      }
    }
    // P̄ = sym(β (Fᵀ e')ᵀ) + W M B + (W M B)ᵀ
    const Strided<E> mb = TransposedRight<B>(n, n, bm_, row, turned_);
    Product<B>(n, n, n, next.Plain(terms.w), mb, Into::kSet, t1_, row);
    for (int i = 0; i < n; ++i) {
      for (int j = 0; j <= i; ++j) {
        const E outer = MulAdd(filtered_mean[i], terms.fe[j], filtered_mean[j] * terms.fe[i]);
        filtered_cov[i * row + j] = filtered_cov[j * row + i] =
            MulAdd(half, outer, t1_[i * row + j] + t1_[j * row + i]);
      }
    }
    // Q̄ = -sym(γ e'ᵀ) + (Gᵀ / 2 - V) M G + its transpose; the next covariance has Gᵀ M G.
    const Strided<E> mg = TransposedRight<B>(n, n, gm_, row, turned_);
    for (int64_t k = 0; k < n * row; ++k) t1_[k] = MulAdd(half, gain.gt[k], -terms.v[k]);
    Product<B>(n, n, n, next.Plain(t1_), mg, Into::kSet, t2_, row);
    Product<B, true>(n, n, n, next.Plain(gain.gt), mg, Into::kSet, cov, row);
    Mirror(n, row, cov);
    for (int i = 0; i < n; ++i) {
      for (int j = 0; j <= i; ++j) {
        const E outer = MulAdd(b[i], terms.e[j], b[j] * terms.e[i]);
        q[i * row + j] = q[j * row + i] = MulAdd(half, outer, t2_[i * row + j] + t2_[j * row + i]);
      }
    }
  }

 private:
  E *bm_, *gm_, *t1_, *t2_, *turned_, *pi_;
};

}  // namespace linalg::small
