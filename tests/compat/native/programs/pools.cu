#include "check.h"
#include <cstdint>

__global__ void fill(int *p, int v) { p[blockIdx.x * blockDim.x + threadIdx.x] = v; }

int main()
{
    cudaStream_t s;
    CUDA(cudaStreamCreate(&s));
    int supported = 0;
    CUDA(cudaDeviceGetAttribute(&supported, cudaDevAttrMemoryPoolsSupported, 0));
    CHECK(supported == 1);
    for (int i = 0; i < 20; i++) {
        int *p, v[256];
        CUDA(cudaMallocAsync(&p, sizeof v, s));
        fill<<<1, 256, 0, s>>>(p, i);
        CUDA(cudaMemcpyAsync(v, p, sizeof v, cudaMemcpyDeviceToHost, s));
        CUDA(cudaFreeAsync(p, s));
        CUDA(cudaStreamSynchronize(s));
        CHECK(v[0] == i && v[255] == i);
    }
    cudaMemPool_t pool, own;
    CUDA(cudaDeviceGetDefaultMemPool(&pool, 0));
    uint64_t threshold = 1 << 20, got = 0;
    CUDA(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &threshold));
    CUDA(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &got));
    CHECK(got == threshold);
    CUDA(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemCurrent, &got));
    CHECK(got == 0);
    cudaMemPoolProps props = {};
    props.allocType = cudaMemAllocationTypePinned;
    props.location.type = cudaMemLocationTypeDevice;
    CUDA(cudaMemPoolCreate(&own, &props));
    int *p;
    CUDA(cudaMallocFromPoolAsync(&p, 4096, own, s));
    fill<<<4, 256, 0, s>>>(p, 3);
    CUDA(cudaStreamSynchronize(s));
    CUDA(cudaMemPoolGetAttribute(own, cudaMemPoolAttrUsedMemCurrent, &got));
    CHECK(got >= 4096);
    CUDA(cudaFreeAsync(p, s));
    CUDA(cudaStreamSynchronize(s));
    CUDA(cudaMemPoolTrimTo(own, 0));
    CUDA(cudaDeviceSetMemPool(0, own));
    cudaMemPool_t now;
    CUDA(cudaDeviceGetMemPool(&now, 0));
    CHECK(now == own);
    CUDA(cudaMallocAsync(&p, 64, s));
    CUDA(cudaFree(p)); // allowed for stream-ordered memory, too
    CUDA(cudaDeviceSetMemPool(0, pool));
    CUDA(cudaMemPoolDestroy(own));
    puts("ok");
}
