#include "check.h"
#include <cstring>

int main()
{
    int count = 0, driver = 0, runtime = 0, value = 0;
    CUDA(cudaGetDeviceCount(&count));
    CHECK(count == 1);
    CUDA(cudaDriverGetVersion(&driver));
    CUDA(cudaRuntimeGetVersion(&runtime));
    CHECK(runtime == CUDART_VERSION && driver >= runtime / 1000 * 1000);
    cudaDeviceProp p;
    memset(&p, 0xcc, sizeof p);
    CUDA(cudaGetDeviceProperties(&p, 0));
    CHECK(strlen(p.name) > 0 && strlen(p.name) < 256);
    CHECK(p.warpSize == 32 && p.maxThreadsPerBlock == 1024 && p.maxThreadsDim[0] == 1024 && p.maxThreadsDim[2] == 64);
    CHECK(p.maxGridSize[0] == 2147483647 && p.maxGridSize[1] == 65535 && p.maxGridSize[2] == 65535);
    CHECK(p.major * 10 + p.minor >= 75 && p.multiProcessorCount > 0 && p.totalGlobalMem > (100u << 20));
    CHECK(p.sharedMemPerBlock == 49152 && p.sharedMemPerBlockOptin >= 65536 && p.sharedMemPerMultiprocessor >= 65536);
    CHECK(p.regsPerBlock == 65536 && p.totalConstMem == 65536 && p.unifiedAddressing == 1 && p.canMapHostMemory >= 0);
    CHECK(p.integrated == 0 && p.pciBusID >= 0 && p.pciDeviceID >= 0 && p.asyncEngineCount >= 0);
    bool uuid = false;
    for (char c : p.uuid.bytes) uuid |= c != 0;
    CHECK(uuid);
    // every attribute that the runtime names has an answer, and the ones that properties repeat agree
    for (int a = 1; a <= cudaDevAttrHostMemoryPoolsSupported; a++) {
        cudaError_t e = cudaDeviceGetAttribute(&value, (cudaDeviceAttr)a, 0);
        if (e != cudaSuccess && e != cudaErrorInvalidValue) { fprintf(stderr, "attribute %d: %s\n", a, cudaGetErrorName(e)); return 1; }
        (void)cudaGetLastError();
    }
    CUDA(cudaDeviceGetAttribute(&value, cudaDevAttrMultiProcessorCount, 0));
    CHECK(value == p.multiProcessorCount);
    EXPECT(cudaErrorInvalidDevice, cudaDeviceGetAttribute(&value, cudaDevAttrWarpSize, 7));
    (void)cudaGetLastError();
    char bus[32];
    CUDA(cudaDeviceGetPCIBusId(bus, sizeof bus, 0));
    CHECK(strlen(bus) == 12);
    int device = -1;
    CUDA(cudaDeviceGetByPCIBusId(&device, bus));
    CHECK(device == 0);
    size_t free = 0, total = 0;
    CUDA(cudaMemGetInfo(&free, &total));
    CHECK(total == p.totalGlobalMem && free <= total && free > 0);
    EXPECT(cudaErrorInvalidDevice, cudaSetDevice(1));
    EXPECT(cudaErrorInvalidDevice, cudaSetDevice(-1));
    (void)cudaGetLastError();
    CUDA(cudaGetDevice(&device));
    CHECK(device == 0);
    CUDA(cudaChooseDevice(&device, &p));
    size_t limit = 0;
    CUDA(cudaDeviceGetLimit(&limit, cudaLimitStackSize));
    CHECK(limit >= 1024);
    CUDA(cudaDeviceSetLimit(cudaLimitMallocHeapSize, 16 << 20));
    CUDA(cudaDeviceGetLimit(&limit, cudaLimitMallocHeapSize));
    CHECK(limit >= 16 << 20);
    unsigned flags = 0;
    CUDA(cudaGetDeviceFlags(&flags));
    cudaFuncCache cache;
    CUDA(cudaDeviceGetCacheConfig(&cache));
    CUDA(cudaDeviceSetCacheConfig(cudaFuncCachePreferL1));
    puts("ok");
}
