// build: -lcuda
#include <cuda.h>
#include "check.h"

__global__ void fill(int *p, int v) { p[threadIdx.x] = v; }

static CUresult create(CUcontext *c, CUdevice d)
{
#if CUDA_VERSION >= 13000
    return cuCtxCreate(c, nullptr, 0, d);
#else
    return cuCtxCreate(c, 0, d);
#endif
}

int main()
{
    DRIVER(cuInit(0));
    CUdevice device;
    CUcontext a, b, now, popped;
    DRIVER(cuDeviceGet(&device, 0));
    DRIVER(create(&a, device));
    CUdeviceptr in_a;
    DRIVER(cuMemAlloc(&in_a, 128));
    CUstream stream_a;
    DRIVER(cuStreamCreate(&stream_a, 0));
    DRIVER(create(&b, device));
    DRIVER(cuCtxGetCurrent(&now));
    CHECK(now == b);
    CUdeviceptr in_b;
    DRIVER(cuMemAlloc(&in_b, 128));
    int v = 9, w = 0;
    DRIVER(cuMemcpyHtoD(in_b, &v, 4));
    DRIVER(cuMemcpyPeer(in_a, a, in_b, b, 4));
    DRIVER(cuMemsetD32Async(in_b, 1, 1, stream_a)); // copies and fills may go to a stream of another context
    DRIVER(cuStreamSynchronize(stream_a));
    DRIVER(cuCtxPopCurrent(&popped));
    CHECK(popped == b);
    DRIVER(cuCtxGetCurrent(&now));
    CHECK(now == a);
    DRIVER(cuMemcpyDtoH(&w, in_a, 4));
    CHECK(w == 9);
    DRIVER(cuCtxDestroy(b));
    DRIVER(cuCtxDestroy(a));
    DRIVER(cuCtxGetCurrent(&now));
    CHECK(now == nullptr);
    DRIVER_EXPECT(CUDA_ERROR_INVALID_CONTEXT, cuMemAlloc(&in_a, 16));

    // the runtime takes the primary context, which the driver API may share
    int *d, h[32];
    CUDA(cudaMalloc(&d, sizeof h));
    DRIVER(cuCtxGetCurrent(&now));
    CHECK(now != nullptr);
    CUcontext primary;
    DRIVER(cuDevicePrimaryCtxRetain(&primary, device));
    CHECK(primary == now);
    unsigned flags;
    int active;
    DRIVER(cuDevicePrimaryCtxGetState(device, &flags, &active));
    CHECK(active == 1);
    DRIVER(cuDevicePrimaryCtxRelease(device));
    fill<<<1, 32>>>(d, 4);
    DRIVER(cuMemcpyDtoH(h, (CUdeviceptr)d, sizeof h));
    CHECK(h[31] == 4);
    // a context made by the program becomes the runtime's, too
    DRIVER(create(&a, device));
    int *e;
    CUDA(cudaMalloc(&e, sizeof h));
    fill<<<1, 32>>>(e, 6);
    CUDA(cudaMemcpy(h, e, sizeof h, cudaMemcpyDeviceToHost));
    CHECK(h[0] == 6);
    DRIVER(cuCtxDestroy(a));
    puts("ok");
}
