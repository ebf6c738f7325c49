#include "check.h"
#include <cstring>

__global__ void __launch_bounds__(256, 2) bounded(float *p)
{
    __shared__ float tile[1024];
    tile[threadIdx.x] = p[threadIdx.x];
    __syncthreads();
    p[threadIdx.x] = tile[255 - threadIdx.x];
}
__global__ void dynamic(int *out, int n)
{
    extern __shared__ int s[];
    for (int i = threadIdx.x; i < n; i += blockDim.x) s[i] = i;
    __syncthreads();
    if (threadIdx.x == 0) {
        int sum = 0;
        for (int i = 0; i < n; i++) sum += s[i] & 15;
        *out = sum;
    }
}
static size_t shared_of(int block) { return block * 16; }
struct SharedOf { size_t operator()(int block) const { return block * 16; } };

int main()
{
    cudaFuncAttributes a;
    CUDA(cudaFuncGetAttributes(&a, bounded));
    CHECK(a.sharedSizeBytes == 4096 && a.maxThreadsPerBlock == 256 && a.numRegs > 0 && a.constSizeBytes == 0 && a.localSizeBytes == 0);
    CHECK(a.ptxVersion == 75 && a.binaryVersion >= 75);
    int blocks = 0, grid = 0, block = 0;
    CUDA(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, bounded, 256, 0));
    CHECK(blocks >= 2 && blocks <= 32);
    CUDA(cudaOccupancyMaxPotentialBlockSize(&grid, &block, bounded, 0, 0));
    CHECK(block == 256 && grid >= 1);
    CUDA(cudaOccupancyMaxPotentialBlockSizeVariableSMem(&grid, &block, dynamic, SharedOf()));
    CHECK(block >= 32 && block % 32 == 0 && grid >= 1);
    size_t dynamic_bytes = 0;
    CUDA(cudaOccupancyAvailableDynamicSMemPerBlock(&dynamic_bytes, dynamic, 1, 128));
    CHECK(dynamic_bytes >= 40000);
    (void)shared_of;

    // more than 48 KiB of shared memory must be asked for
    int most = 0, *out, got = 0;
    CUDA(cudaMalloc(&out, sizeof(int)));
    CUDA(cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, 0));
    CHECK(most > 49152);
    const int n = 60000 / 4;
    dynamic<<<1, 128, 60000>>>(out, n);
    EXPECT(cudaErrorInvalidValue, cudaGetLastError());
    CUDA(cudaFuncSetAttribute(dynamic, cudaFuncAttributeMaxDynamicSharedMemorySize, 60000));
    dynamic<<<1, 128, 60000>>>(out, n);
    CUDA(cudaGetLastError());
    CUDA(cudaMemcpy(&got, out, 4, cudaMemcpyDeviceToHost));
    int want = 0;
    for (int i = 0; i < n; i++) want += i & 15;
    CHECK(got == want);
    EXPECT(cudaErrorInvalidValue, cudaFuncSetAttribute(dynamic, cudaFuncAttributeMaxDynamicSharedMemorySize, most + 1));
    (void)cudaGetLastError();
    CUDA(cudaFuncSetAttribute(dynamic, cudaFuncAttributePreferredSharedMemoryCarveout, 50));
    CUDA(cudaFuncSetCacheConfig(dynamic, cudaFuncCachePreferShared));
    CUDA(cudaFuncGetAttributes(&a, dynamic));
    CHECK(a.maxDynamicSharedSizeBytes == 60000 && a.preferredShmemCarveout == 50);
    REFUSED(cudaErrorInvalidValue, (bounded<<<1, 512>>>((float *)out), cudaGetLastError())); // over the launch bound
    puts("ok");
}
