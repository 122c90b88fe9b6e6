// The transposition that every tutorial on bank conflicts uses, with its host code as it stands in such a file.
#include <cstdio>
#include <vector>
#include <cuda_runtime.h>

#ifndef PAD
#define PAD 0
#endif

__global__ void transpose(const float *in, float *out, int width)
{
    __shared__ float tile[32][32 + PAD];
    int x = blockIdx.x * 32 + threadIdx.x;
    int y = blockIdx.y * 32 + threadIdx.y;
    for (int j = 0; j < 32; j += 8)
        tile[threadIdx.y + j][threadIdx.x] = in[(y + j) * width + x];
    __syncthreads();
    x = blockIdx.y * 32 + threadIdx.x;
    y = blockIdx.x * 32 + threadIdx.y;
    for (int j = 0; j < 32; j += 8)
        out[(y + j) * width + x] = tile[threadIdx.x][threadIdx.y + j];
}

int main()
{
    const int width = 1024;
    std::vector<float> host(width * width, 1.0f);
    float *in, *out;
    cudaMalloc(&in, host.size() * sizeof(float));
    cudaMalloc(&out, host.size() * sizeof(float));
    cudaMemcpy(in, host.data(), host.size() * sizeof(float), cudaMemcpyHostToDevice);
    transpose<<<dim3(width / 32, width / 32), dim3(32, 8)>>>(in, out, width);
    printf("%s\n", cudaGetErrorString(cudaDeviceSynchronize()));
    return 0;
}
