// The weights of every axis of a batch: `Axis::compute` of
// `crates/ops/src/geometry/resample/axis.rs`, operation by operation in binary64. One thread an
// output. Contracting a product and a sum to one operation would change weights.
#pragma once

DEVICE double triangle(double distance) {
  double height = __dsub_rn(1.0, distance);
  return height > 0 ? height : 0;
}

// Convolution with a = -1/2, in Pillow's order.
DEVICE double cubic(double x) {
  if (x < 1.0) {
    double sum = __dsub_rn(__dmul_rn(1.5, x), 2.5);
    return __dadd_rn(__dmul_rn(__dmul_rn(sum, x), x), 1.0);
  }
  if (x < 2.0) {
    double sum = __dadd_rn(__dmul_rn(__dsub_rn(x, 5.0), x), 8.0);
    return __dmul_rn(__dsub_rn(__dmul_rn(sum, x), 4.0), -0.5);
  }
  return 0;
}

DEVICE double height_of(const DecodeAxis& a, double centre, u32 input) {
  double place = __dadd_rn(__dsub_rn((double)input, centre), 0.5), distance = __dmul_rn(place, a.per_input);
  distance = distance < 0 ? -distance : distance;
  return a.filter == 2 ? cubic(distance) : triangle(distance);
}

DEVICE u32 nearest_input(double place) {
  place = __dadd_rn(place, 0.5);
  return (u32)__double2int_rd(place > 0 ? place : 0);
}

// Puts the weights of one output down as they come.
struct WeightsOut {
  const DecodeAxis& axis;
  u32* to;
  u32 output;
  u32 begin;           // the first input
  uint4 four;          // of four inputs: the low, middle and high bytes of weights, or weights
};

DEVICE void put(WeightsOut& o, u32 input, int weight, bool is_last) {
  if (!o.axis.by_fours) {
    o.to[(input - o.begin) * o.axis.n_outputs + o.output] = (u32)weight;
    return;
  }
  u32 place = input & 3, at = o.output * o.axis.taps + (input >> 2) - (o.begin >> 2), w = (u32)weight;
  if (o.axis.running) {
    if (place == 0) o.four.x = w;
    if (place == 1) o.four.y = w;
    if (place == 2) o.four.z = w;
    if (place == 3) o.four.w = w;
  } else {
    // The high byte has the sign.
    o.four.x |= (w & 255) << 8 * place;
    o.four.y |= (w >> 8 & 255) << 8 * place;
    o.four.z |= (w >> 16 & 255) << 8 * place;
  }
  if (place == 3 || is_last) {
    ((uint4*)o.to)[at] = o.four;
    o.four = make_uint4(0, 0, 0, 0);
  }
}

DEVICE void weigh(const DecodeAxis& a, u8* scratch, u32 output) {
  u32 nth = a.window + (a.mirror ? a.n_outputs - 1 - output : output);
  double centre;
  u32 first, end;
  if (a.filter == 0) {
    // As in Pillow, each centre is the one before plus the scale.
    centre = __dadd_rn(a.start, __dmul_rn(a.scale, 0.5));
    for (u32 i = 0; i < nth; i++) centre = __dadd_rn(centre, a.scale);
    first = (u32)__double2int_rd(centre);
    first = first < a.n_in - 1 ? first : a.n_in - 1;
    end = first + 1;
  } else {
    centre = __dadd_rn(a.start, __dmul_rn(__dadd_rn((double)nth, 0.5), a.scale));
    first = nearest_input(__dsub_rn(centre, a.reach));
    end = nearest_input(__dadd_rn(centre, a.reach));
    end = end < a.n_in ? end : a.n_in;
  }
  double total = 0, sum = 0, one = a.running ? 16384.0 : 4194304.0;
  if (a.filter == 0) total = 1;
  else for (u32 x = first; x < end; x++) total = __dadd_rn(total, height_of(a, centre, x));
  int before = 0;
  WeightsOut out = {a, at_piece<u32>(scratch, a.weights), output, first - a.origin, make_uint4(0, 0, 0, 0)};
  for (u32 x = first; x < end; x++) {
    double share = a.filter == 0 ? 1.0 : __ddiv_rn(height_of(a, centre, x), total);
    int weight;
    if (a.running) {
      sum = __dadd_rn(sum, share);
      int all = __double2int_rd(__dadd_rn(__dmul_rn(sum, one), 0.5));
      weight = all - before;
      before = all;
    } else {
      double exact = __dmul_rn(share, one), amount = exact < 0 ? -exact : exact;
      int rounded = __double2int_rd(__dadd_rn(amount, 0.5));
      weight = exact < 0 ? -rounded : rounded;
    }
    put(out, x - a.origin, weight, x + 1 == end);
  }
  first -= a.origin;
  end -= a.origin;
  u32 from = a.by_fours ? first >> 2 : first, to = a.by_fours ? (end + 3) >> 2 : end;
  at_piece<u32>(scratch, a.spans)[output] = from | (to - from) << 16;
}

// A thread block an axis; the blocks behind the last axis clear the crops' status words, which
// no kernel before the next one looks at.
KERNEL(256, decode_axes, DecodeArgs a) {
  if (blockIdx.x < a.n_axes) {
    const DecodeAxis axis = nth<DecodeAxis>(a.input, a.axes, blockIdx.x);
    for (u32 output = threadIdx.x; output < axis.n_outputs; output += blockDim.x) {
      weigh(axis, a.scratch, output);
    }
    return;
  }
  u32 crop = (blockIdx.x - a.n_axes) * blockDim.x + threadIdx.x;
  if (crop < a.n_crops) at_piece<u32>(a.scratch, a.status)[crop] = 0;
}
