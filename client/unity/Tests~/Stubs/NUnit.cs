// The part of NUnit (com.unity.test-framework) that the package's tests use.
using System;

namespace NUnit.Framework
{
    public sealed class TestAttribute : Attribute { }

    public static class Assert
    {
        public static void AreEqual(object expected, object actual)
        {
            if (!Equals(expected, actual)) throw new Exception("expected " + expected + ", found " + actual);
        }

        public static void IsTrue(bool condition) { AreEqual(true, condition); }
    }
}
