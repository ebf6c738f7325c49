// build: -lineinfo
#include "check.h"
#include <vector>

constexpr int TILE = 16;

__global__ void multiply(const float *a, const float *b, float *c, int n)
{
    __shared__ float ta[TILE][TILE], tb[TILE][TILE];
    int row = blockIdx.y * TILE + threadIdx.y, column = blockIdx.x * TILE + threadIdx.x;
    float sum = 0;
    for (int t = 0; t < n / TILE; t++) {
        ta[threadIdx.y][threadIdx.x] = a[row * n + t * TILE + threadIdx.x];
        tb[threadIdx.y][threadIdx.x] = b[(t * TILE + threadIdx.y) * n + column];
        __syncthreads();
#pragma unroll
        for (int k = 0; k < TILE; k++) sum += ta[threadIdx.y][k] * tb[k][threadIdx.x];
        __syncthreads();
    }
    c[row * n + column] = sum;
}

int main()
{
    const int n = 128;
    std::vector<float> a(n * n), b(n * n), c(n * n);
    for (int i = 0; i < n * n; i++) { a[i] = (i * 7) % 13 - 6; b[i] = (i * 5) % 11 - 5; }
    float *x, *y, *z;
    size_t bytes = n * n * sizeof(float);
    CUDA(cudaMalloc(&x, bytes));
    CUDA(cudaMalloc(&y, bytes));
    CUDA(cudaMalloc(&z, bytes));
    CUDA(cudaMemcpy(x, a.data(), bytes, cudaMemcpyHostToDevice));
    CUDA(cudaMemcpy(y, b.data(), bytes, cudaMemcpyHostToDevice));
    multiply<<<dim3(n / TILE, n / TILE), dim3(TILE, TILE)>>>(x, y, z, n);
    CUDA(cudaGetLastError());
    CUDA(cudaMemcpy(c.data(), z, bytes, cudaMemcpyDeviceToHost));
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++) {
            float sum = 0; // small integers: exact in any order
            for (int k = 0; k < n; k++) sum += a[i * n + k] * b[k * n + j];
            CHECK(c[i * n + j] == sum);
        }
    puts("ok");
}
