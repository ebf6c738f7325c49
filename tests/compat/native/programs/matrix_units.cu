// build: -gencode=arch=compute_80,code=compute_80
// The matrix units through <mma.h> (f16, bf16, tf32, f64, 8-bit integers), tiles brought by asynchronous copies behind a pipeline or a barrier.
#include "check.h"
#include <cmath>
#include <cuda/barrier>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_pipeline.h>
#include <mma.h>
#include <vector>

using namespace nvcuda;

template <int M, int N, int K, typename Type, typename Fragment, typename Total>
__global__ void multiply(const Type *a, const Type *b, Total *c, int m, int n, int k)
{
    int row = blockIdx.y * M, column = blockIdx.x * N;
    wmma::fragment<wmma::accumulator, M, N, K, Total> total;
    wmma::fill_fragment(total, Total(0));
    for (int step = 0; step < k; step += K) {
        wmma::fragment<wmma::matrix_a, M, N, K, Fragment, wmma::row_major> left;
        wmma::fragment<wmma::matrix_b, M, N, K, Fragment, wmma::col_major> right;
        wmma::load_matrix_sync(left, a + row * k + step, k);
        wmma::load_matrix_sync(right, b + column * k + step, k);
        wmma::mma_sync(total, left, right, total);
    }
    for (int i = 0; i < total.num_elements; i++) total.x[i] = total.x[i] * Total(2);
    wmma::store_matrix_sync(c + row * n + column, total, n, wmma::mem_row_major);
}

template <int M, int N, int K, typename Type, typename Fragment, typename Total> void product(double tolerance)
{
    const int m = 2 * M, n = 3 * N, k = 4 * K;
    Type *a, *b;
    Total *c;
    CUDA(cudaMallocManaged(&a, m * k * sizeof(Type)));
    CUDA(cudaMallocManaged(&b, n * k * sizeof(Type)));
    CUDA(cudaMallocManaged(&c, m * n * sizeof(Total)));
    for (int i = 0; i < m * k; i++) a[i] = Type(float(i * 7 % 23) - 11.f);
    for (int i = 0; i < n * k; i++) b[i] = Type(float(i * 5 % 19) - 9.f);
    multiply<M, N, K, Type, Fragment, Total><<<dim3(3, 2), 32>>>(a, b, c, m, n, k);
    CUDA(cudaDeviceSynchronize());
    for (int i = 0; i < m; i++)
        for (int j = 0; j < n; j++) {
            double sum = 0;
            for (int p = 0; p < k; p++) sum += double(float(a[i * k + p])) * double(float(b[j * k + p]));
            CHECK(fabs(double(c[i * n + j]) - 2 * sum) <= tolerance * fabs(2 * sum));
        }
    CUDA(cudaFree(a));
    CUDA(cudaFree(b));
    CUDA(cudaFree(c));
}

constexpr int TILE = 128;

// Two tiles in flight: while one is summed the next one is copied.
__global__ void pipelined(const int *in, int *out, int tiles)
{
    __shared__ int tile[2][TILE];
    int t = threadIdx.x, sum = 0;
    __pipeline_memcpy_async(&tile[0][t], in + t, 4);
    __pipeline_commit();
    for (int i = 0; i < tiles; i++) {
        if (i + 1 < tiles) __pipeline_memcpy_async(&tile[(i + 1) % 2][t], in + (i + 1) * TILE + t, 4);
        __pipeline_commit();
        __pipeline_wait_prior(1);
        __syncthreads();
        sum += tile[i % 2][TILE - 1 - t];
        __syncthreads();
    }
    out[t] = sum;
}

__global__ void behind_barrier(const int *in, int *out, int rounds)
{
    __shared__ cuda::barrier<cuda::thread_scope_block> barrier;
    __shared__ alignas(16) int tile[TILE];
    if (threadIdx.x == 0) init(&barrier, blockDim.x);
    __syncthreads();
    int sum = 0;
    for (int i = 0; i < rounds; i++) {
        cuda::memcpy_async(&tile[threadIdx.x], in + i * TILE + threadIdx.x, sizeof(int), barrier);
        barrier.arrive_and_wait();
        sum += tile[(threadIdx.x + 1) % TILE];
        barrier.arrive_and_wait();
    }
    out[threadIdx.x] = sum;
}

int main()
{
    product<16, 16, 16, __half, __half, float>(1e-6);
    product<32, 8, 16, __half, __half, float>(1e-6);
    product<8, 32, 16, __nv_bfloat16, __nv_bfloat16, float>(1e-6);
    product<16, 16, 8, float, wmma::precision::tf32, float>(1e-6);
    product<8, 8, 4, double, double, double>(0);
    product<16, 16, 16, signed char, signed char, int>(0);
    product<32, 8, 16, signed char, signed char, int>(0);

    const int tiles = 5;
    int *in, *out;
    CUDA(cudaMallocManaged(&in, tiles * TILE * sizeof(int)));
    CUDA(cudaMallocManaged(&out, TILE * sizeof(int)));
    for (int i = 0; i < tiles * TILE; i++) in[i] = i * i % 1009;
    for (int way = 0; way < 2; way++) {
        if (way == 0) pipelined<<<1, TILE>>>(in, out, tiles);
        else behind_barrier<<<1, TILE>>>(in, out, tiles);
        CUDA(cudaDeviceSynchronize());
        for (int t = 0; t < TILE; t++) {
            int sum = 0;
            for (int i = 0; i < tiles; i++) sum += in[i * TILE + (way == 0 ? TILE - 1 - t : (t + 1) % TILE)];
            CHECK(out[t] == sum);
        }
    }
    puts("ok");
}
