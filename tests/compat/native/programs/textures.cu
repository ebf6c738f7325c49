#include "check.h"
#include <cmath>
#include <vector>

__global__ void sample(cudaTextureObject_t t, float *out, int w, int h)
{
    int x = threadIdx.x, y = threadIdx.y;
    out[y * w + x] = tex2D<float>(t, x + 0.5f, y + 0.5f) + tex2D<float>(t, x + 1.0f, y + 0.5f);
}
__global__ void fetch(cudaTextureObject_t t, float *out, int n) { out[threadIdx.x] = tex1Dfetch<float>(t, n - 1 - threadIdx.x); }
__global__ void surface(cudaSurfaceObject_t s, int w)
{
    float v;
    surf2Dread(&v, s, threadIdx.x * 4, threadIdx.y);
    surf2Dwrite(v * 10, s, threadIdx.x * 4, threadIdx.y);
}

int main()
{
    const int w = 16, h = 8;
    std::vector<float> a(w * h), b(w * h);
    for (int i = 0; i < w * h; i++) a[i] = i;
    auto format = cudaCreateChannelDesc<float>();
    cudaArray_t array;
    CUDA(cudaMallocArray(&array, &format, w, h, cudaArraySurfaceLoadStore));
    CUDA(cudaMemcpy2DToArray(array, 0, 0, a.data(), w * 4, w * 4, h, cudaMemcpyHostToDevice));
    cudaResourceDesc resource = {};
    resource.resType = cudaResourceTypeArray;
    resource.res.array.array = array;
    cudaTextureDesc how = {};
    how.addressMode[0] = how.addressMode[1] = cudaAddressModeClamp;
    how.filterMode = cudaFilterModeLinear;
    how.readMode = cudaReadModeElementType;
    cudaTextureObject_t texture;
    CUDA(cudaCreateTextureObject(&texture, &resource, &how, nullptr));
    float *out;
    CUDA(cudaMalloc(&out, w * h * 4));
    sample<<<1, dim3(w, h)>>>(texture, out, w, h);
    CUDA(cudaMemcpy(b.data(), out, w * h * 4, cudaMemcpyDeviceToHost));
    for (int y = 0; y < h; y++)
        for (int x = 0; x < w; x++) CHECK(b[y * w + x] == a[y * w + x] + (x < w - 1 ? a[y * w + x] + 0.5f : a[y * w + x]));
    cudaSurfaceObject_t s;
    CUDA(cudaCreateSurfaceObject(&s, &resource));
    surface<<<1, dim3(w, h)>>>(s, w);
    CUDA(cudaMemcpy2DFromArray(b.data(), w * 4, array, 0, 0, w * 4, h, cudaMemcpyDeviceToHost));
    for (int i = 0; i < w * h; i++) CHECK(b[i] == a[i] * 10);

    CUDA(cudaMemcpy(out, a.data(), w * h * 4, cudaMemcpyHostToDevice));
    resource = {};
    resource.resType = cudaResourceTypeLinear;
    resource.res.linear.devPtr = out;
    resource.res.linear.desc = format;
    resource.res.linear.sizeInBytes = w * h * 4;
    how = {};
    cudaTextureObject_t linear;
    CUDA(cudaCreateTextureObject(&linear, &resource, &how, nullptr));
    float *back;
    CUDA(cudaMalloc(&back, w * h * 4));
    fetch<<<1, w * h>>>(linear, back, w * h);
    CUDA(cudaMemcpy(b.data(), back, w * h * 4, cudaMemcpyDeviceToHost));
    for (int i = 0; i < w * h; i++) CHECK(b[i] == a[w * h - 1 - i]);
    CUDA(cudaDestroyTextureObject(texture));
    CUDA(cudaDestroyTextureObject(linear));
    CUDA(cudaDestroySurfaceObject(s));
    puts("ok");
}
