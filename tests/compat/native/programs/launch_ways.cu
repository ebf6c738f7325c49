#include "check.h"
#include <cstring>

__global__ void add(int *p, int v) { p[threadIdx.x] += v; }
template <typename T> __global__ void scale(T *p, T v) { p[threadIdx.x] = p[threadIdx.x] * v; }
struct Big { int values[100]; };
__global__ void big(int *p, Big b) { p[threadIdx.x] = b.values[threadIdx.x] + b.values[99]; }

typedef int (*DriverVersion)(int *);

int main()
{
    int *d, h[32], three = 3;
    CUDA(cudaMalloc(&d, sizeof h));
    CUDA(cudaMemset(d, 0, sizeof h));
    void *args[] = {&d, &three};
    CUDA(cudaLaunchKernel((void *)add, dim3(1), dim3(32), args, 0, nullptr));
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(1);
    config.blockDim = dim3(32);
    cudaLaunchAttribute attribute = {};
    attribute.id = cudaLaunchAttributePriority;
    attribute.val.priority = 0;
    config.attrs = &attribute;
    config.numAttrs = 1;
    CUDA(cudaLaunchKernelExC(&config, (void *)add, args));
    CUDA(cudaLaunchKernelEx(&config, scale<int>, d, 5));
    CUDA(cudaMemcpy(h, d, sizeof h, cudaMemcpyDeviceToHost));
    for (int v : h) CHECK(v == 30);
    Big b;
    for (int i = 0; i < 100; i++) b.values[i] = i * i;
    big<<<1, 32>>>(d, b);
    CUDA(cudaMemcpy(h, d, sizeof h, cudaMemcpyDeviceToHost));
    for (int i = 0; i < 32; i++) CHECK(h[i] == i * i + 9801);

    cudaFunction_t function;
    CUDA(cudaGetFuncBySymbol(&function, (void *)add));
    CHECK(function != nullptr);
    cudaKernel_t kernel;
    CUDA(cudaGetKernel(&kernel, (void *)add));
    CUDA(cudaLaunchKernel((void *)kernel, dim3(1), dim3(32), args, 0, nullptr));
    CUDA(cudaMemcpy(h, d, sizeof h, cudaMemcpyDeviceToHost));
    CHECK(h[2] == 4 + 9801 + 3);
    const char *name = nullptr;
    CUDA(cudaFuncGetName(&name, (void *)add));
    CHECK(strcmp(name, "_Z3addPii") == 0);
    size_t offset = 0, size = 0;
    CUDA(cudaFuncGetParamInfo((void *)big, 1, &offset, &size));
    CHECK(offset == 8 && size == 400);

    void *entry = nullptr;
    cudaDriverEntryPointQueryResult found;
    CUDA(cudaGetDriverEntryPointByVersion("cuDriverGetVersion", &entry, 12000, cudaEnableDefault, &found));
    CHECK(found == cudaDriverEntryPointSuccess && entry);
    int by_driver = 0, by_runtime = 0;
    CHECK(((DriverVersion)entry)(&by_driver) == 0);
    CUDA(cudaDriverGetVersion(&by_runtime));
    CHECK(by_driver == by_runtime);
    CUDA(cudaGetDriverEntryPointByVersion("cuNoSuchFunction", &entry, 12000, cudaEnableDefault, &found));
    CHECK(found == cudaDriverEntryPointSymbolNotFound && entry == nullptr);
    puts("ok");
}
