"""Profile a CUDA kernel without a GPU: the source that cupy.RawKernel takes, NumPy arrays, and what it did."""

import numpy as np

import fa_bench

SOURCE = r"""
extern "C" __global__ void column_sums(const float* matrix, float* sums, int rows, int row_stride, int column_stride) {
    int column = blockIdx.x * blockDim.x + threadIdx.x;
    float sum = 0;
    for (int row = 0; row < rows; ++row)
        sum += matrix[row * row_stride + column * column_stride];
    sums[column] = sum;
}
"""

matrix = np.random.default_rng(0).standard_normal((64, 256), dtype=np.float32)

# By rows, neighbours in a warp are neighbours in memory. By columns every lane asks for a sector of its own.
for order, stored, strides in (("rows", matrix, (256, 1)), ("columns", np.ascontiguousarray(matrix.T), (1, 64))):
    report = fa_bench.profile(SOURCE, "column_sums", grid=2, block=128, args=(stored, "out:f32[256]", 64, *strides))
    assert np.allclose(report.outputs["sums"], matrix.sum(axis=0), atol=1e-4)
    reads = next(moved for moved in report.traffic if moved.tensor == "matrix")
    print(f"stored by {order}: {reads.bytes:,} bytes read in {reads.requests} requests")
    for line in report.hottest(2):
        print(f"    {line.place}  {line.bytes:9,} bytes  {line.text}")
